"""The components of a party."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from secemb_party.compute import Compute
from secemb_party.compute.threads import Workers
from secemb_party.ledger import Ledger
from secemb_party.metrics import Metrics
from secemb_party.room import VERSIONS, Memory
from secemb_party.storage import ModelStore, ShareStore
from secemb_party.storage.copies import Body
from secemb_party.storage.objects import Objects
from secemb_shared.messages import TaskSpec

if TYPE_CHECKING:
    from secemb_party.traces import Tracing

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The components of a party."""

    role: int
    task: TaskSpec
    ledger: Ledger
    models: ModelStore
    shares: ShareStore
    workers: Workers
    compute: Compute
    ticket_key: Ed25519PublicKey
    scratch: Path  # a folder for temporary files of the process
    objects: Objects | None = None  # the bucket that shares and models are kept in, if not in files
    identity: Ed25519PrivateKey | None = None  # signs the task's successor
    store_of: Callable[[TaskSpec], ModelStore] | None = None  # returns the models of a successor
    catalogue: Body | None = None  # ids and titles of the task's items
    metrics: Metrics = field(default_factory=Metrics)
    memory: Memory = field(default_factory=Memory)  # for devices' messages
    clock: Clock = time.time
    steady: Clock = time.monotonic  # for durations: it cannot be set
    keep_rounds: int = 3
    keep_versions: int = VERSIONS  # newest versions of the model to keep; older ones are thinned out
    keep_seconds: float = math.inf  # how long sessions' rows are kept after their round
    keep_tasks: int | None = None  # how many earlier tasks keep their files; None: all
    tracing: "Tracing | None" = None
    allowed_origins: tuple[str, ...] = ()  # of web pages that may call the devices' listener
    seat_seconds: float = 5.0  # that server 0 waits for the keys of a session that has joined
    reserve: int = 0  # free bytes on disk below which no new session begins
