"""The cost of a sequence model for a device in `make sequences`: bytes of a round, processor time and memory.

All of Amazon needs no table here: keys and updates follow from the layout, and answers have the same length for any
rows.
"""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import process_time

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secemb_lab.bench import device_models
from secemb_lab.bench.device_models import Workload
from secemb_lab.bench.devices import Case
from secemb_lab.report.quality_ratings import NUMBER_BYTES, SessionBytes
from secemb_lab.wire.rounds import measure_rounds
from secemb_sdk.models import Model, registry
from secemb_sdk.models.interface import follows
from secemb_sdk.round.session import DeviceSession
from secemb_shared.catalogue import Catalogue
from secemb_shared.messages import Kind, RoundSpec, TaskSpec, encode_answer
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, encode_relayed, encode_relayed_answer, reply_bytes
from secemb_shared.messages.spec import NEXT
from secemb_tools.catalogues import AMAZON, PaperCatalogue
from secemb_tools.local import Pair
from secemb_tools.specification import build_task
from secemb_tools.transport import Transport

DIMENSIONS = (50, 64)
_TURNS = 3
_MODEL = bytes(32)  # the digest of a made-up model
_ROUNDS = 1000

Bytes = tuple[int, int]  # up, down


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCost:
    """The cost of a round for a device with a full workload."""

    cpu_ms: dict[str, float]  # by phase, one thread
    peak_bytes: int  # growth of a process with model and dense part in its first round
    process_bytes: int  # of that process at most, interpreter and torch included


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueSize:
    """A session over all of Amazon's items; bytes are lengths of messages that were encoded."""

    model: str
    dimension: int
    items: int
    capacity: int  # m': what one window reads
    slots: int
    row_width: int
    dense_size: int
    bytes: SessionBytes
    update_bytes: int  # the whole update, table and dense part, as one vector of the 32-bit ring
    keys_ms: float  # processor time of the keys
    words_ms: float  # and of the upload with its proof

    @property
    def reductions(self) -> tuple[float, float]:
        """Return two shares of the whole update as multiples of what a device sends, directly and relayed."""
        return 2 * self.update_bytes / self.bytes.direct[0], 2 * self.update_bytes / self.bytes.relayed[0]


def update_bytes_of(task: TaskSpec) -> int:
    """Return the size of the whole update: what additive sharing sends once for each of two explicit shares."""
    return task.ring.element_bytes * (task.items * task.row_width + task.dense_size)


def measure_device(name: str, *, dataset: str, items: int, capacity: int) -> DeviceCost:
    """Run a device with a full window through rounds here, and once more in a process of its own for its memory."""
    case = Case(PaperCatalogue(dataset, items, capacity), device_models.make(name, dataset))
    times = [case.run() for _ in range(_TURNS)]
    cpu_ms = {phase: 1e3 * min(one[phase] for one in times) for phase in times[0]}
    return DeviceCost(cpu_ms=cpu_ms, **case.memory(name))


def measure_wire(name: str, task: TaskSpec, catalogue: Catalogue) -> dict[str, Bytes]:
    """Count the bytes of a real device of this task on the wire, HTTP included, by transport: in its second round.

    A task about texts has the catalogue, which the device fetches in its first round.
    """
    task, found = replace(task, cohort=2, min_cohort=2, rounds=_ROUNDS, relay_key=""), {}
    with tempfile.TemporaryDirectory(prefix="secemb-sequences-") as folder:
        pair = Pair(Path(folder), task, relayed=True, catalogue=catalogue if task.catalogue else None)
        with pair.running():
            for way in Transport:
                model = device_models.make(name, task.name)
                moved = asyncio.run(measure_rounds(pair, Path(folder), way, model=model))
                found[way.value] = moved.figures()["later"]
    return found


def measure_catalogue_size(names: Sequence[str], dimensions: Sequence[int] = DIMENSIONS) -> Iterator[CatalogueSize]:
    """Yield a session of each model over all of Amazon, for each dimension."""
    from secemb_sdk.models.torch import compute_alone  # here: torch takes seconds to import

    compute_alone()
    for name in names:
        for dimension in dimensions:
            yield _catalogue_size(name, registry.find(name).make(dimension=dimension), dimension)


def _catalogue_size(name: str, model: Model, dimension: int) -> CatalogueSize:
    task = build_task(
        name=AMAZON.name,
        items=AMAZON.items,
        row_width=model.row_width,
        dense_size=model.dense_size,
        capacity=model.room if follows(model) else AMAZON.capacity,
        fraction_bits=16,
        bound=2**20,
        cohort=100,
        loss=NEXT,
    )
    round_ = RoundSpec(task=task, number=1, model_version=1, model_digest=_MODEL)
    workload, begin = Workload.draw(round_, model), process_time()
    session = DeviceSession(round_, workload.items)
    middle = process_time()
    shape = (workload.items.size, task.row_width)
    session.write(workload.items, np.full(shape, 2.0**-10), np.full(task.dense_size, 2.0**-10))
    return CatalogueSize(
        model=name,
        dimension=dimension,
        items=task.items,
        capacity=task.capacity,
        slots=task.geometry.slots,
        row_width=task.row_width,
        dense_size=task.dense_size,
        bytes=encoded_bytes(session),
        update_bytes=update_bytes_of(task),
        keys_ms=1e3 * (middle - begin),
        words_ms=1e3 * (process_time() - middle),
    )


def encoded_bytes(session: DeviceSession) -> SessionBytes:
    """Return the lengths of a session's messages, each as it is encoded, and of the dense part."""
    round_, task = session.round, session.round.task
    if session.update is None:
        raise ValueError("the session has no upload yet")
    words = np.zeros((task.geometry.slots, task.row_width + 1), np.uint32)
    answers = [encode_answer(round_, session.session_id, party, words) for party in (0, 1)]
    dense = NUMBER_BYTES * task.dense_size
    sent = [*session.keys, *session.update]
    other = bytes(reply_bytes(round_, Kind.KEYS))
    answer = encode_relayed_answer(round_, session.session_id, answers[0], other)
    return SessionBytes(
        direct=(sum(map(len, sent)), sum(map(len, answers)) + dense),
        relayed=(sum(map(len, _relayed(session))), len(answer) + dense),
    )


def _relayed(session: DeviceSession) -> tuple[bytes, bytes]:
    """Return the two messages that the session would send through server 0."""
    if session.update is None:
        raise ValueError("the session has no upload yet")
    public = X25519PrivateKey.generate().public_key().public_bytes_raw()
    key = RelayKey(public=public, not_before=0, not_after=1)
    keys = box_content(session.round, Kind.KEYS, session.keys[1])
    update = box_content(session.round, Kind.UPDATE, session.update[1], mac=session.marks.macs[1])
    return (
        encode_relayed(session.round, session.session_id, Kind.RELAYED_KEYS, session.keys[0], keys, key),
        encode_relayed(session.round, session.session_id, Kind.RELAYED_UPLOAD, session.update[0], update, key),
    )
