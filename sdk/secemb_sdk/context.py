"""The context in which a device's steps run: its home, policy, clocks and source of random bytes."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from secemb_sdk.errors import HomeError, MisfitError, PolicyError
from secemb_sdk.home.catalogue_file import CatalogueFile
from secemb_sdk.home.detections import Misconduct
from secemb_sdk.home.receipts import date_of
from secemb_sdk.home.vault import Vault
from secemb_sdk.models import MatrixFactorisation, Model, Ratings
from secemb_sdk.models.interface import follows, reads_texts
from secemb_sdk.models.window import newest
from secemb_sdk.round.events import before_last, in_catalogue, select_events
from secemb_sdk.round.selection import HoldOut, Selection, select, to_fit
from secemb_sdk.words import Vocabulary
from secemb_shared.messages import RoundSpec, Sizes, TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.messages.privacy import RECORD
from secemb_shared.messages.spec import NEXT, SQUARED
from secemb_shared.randomness import Indices, RandomBytes, secure_bytes

DIRECT, RELAYED = "direct", "relayed"  # the transports
_KEYS_PACE = 0.1  # that the pace can add
_OVERHEAD = 8192  # bytes in addition to the messages: the task, the round, the ticket, receipts


def always() -> bool:
    """Allow everything."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Successor:
    """A task that continues this device's task, as both servers have signed it."""

    task_id: str
    name: str
    items: int
    kept: int  # rows of this device's task
    budget: str  # continued or fresh: whether what was spent of the privacy budget still counts


def follow_always(_successor: Successor) -> bool:
    """Follow every successor that both servers have signed."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The limits that an app sets. Nothing is sent while `allowed` returns False."""

    # Whether to go on with a successor of the task; an app can ask its user first. Called before anything changes.
    follow: Callable[[Successor], bool] = follow_always
    allowed: Callable[[], bool] = always  # unmetered network? on power? Called before every request: it must be quick
    seconds: float = 120.0  # the longest that one call of `contribute()` takes; the next call continues
    bytes: int | None = None  # bodies in both directions; a round that needs more is not started
    # Between the answers to the keys and the update, unless training takes longer: otherwise this time would tell how
    # many items a device has.
    pace_seconds: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise PolicyError("seconds must be a positive number")
        if not 0 <= self.pace_seconds < self.seconds:
            raise PolicyError("pace_seconds must be at least 0 and less than seconds; otherwise no round could finish")

    @property
    def keys_seconds(self) -> float:
        """Return how long after the ticket keys are sent, regardless of how many items are placed."""
        return _KEYS_PACE * self.pace_seconds

    def check_bytes(self, task: TaskSpec, *, relayed: bool = False) -> None:
        """Raise if a training round without retries would exceed the budget."""
        needed = round_bytes(task, relayed=relayed)
        if self.bytes is not None and needed > self.bytes:
            raise PolicyError(
                f"a round of this task transfers {needed:,} bytes; raise `bytes` in the policy to at least that"
            )


def round_bytes(task: TaskSpec, *, relayed: bool = False) -> int:
    """Return the total bytes that a training round transfers in both directions, without retries."""
    sizes = Sizes.of(task)
    messages = sizes.relayed_upload + sizes.relayed_download if relayed else sizes.upload + sizes.download
    return messages + 4 * task.dense_size + _OVERHEAD


Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """A device from the point of view of its steps."""

    vault: Vault = field(repr=False)
    task_id: bytes
    token: str | None = field(default=None, repr=False)
    policy: Policy = field(default_factory=Policy)
    model: Model | None = None  # None: matrix factorisation with the task's row width
    rate: float | None = None  # learning rate of the private part; None: the task's rate for rows
    epochs: int = 1
    hold_out: float = 0.1  # the fraction of ratings reserved for evaluation
    transport: str | None = None  # direct or relayed; None: relayed where the task allows it
    clock: Clock = time.monotonic  # for all waiting and deadlines
    wall_clock: Clock = time.time  # dates receipts and detections, and tells whether a relay key is valid
    random_bytes: RandomBytes = secure_bytes

    @property
    def current_task(self) -> bytes:
        """Return the id of the task that this device belongs to now: the pinned one, or a successor of it."""
        return self.vault.chain.current

    def model_for(self, task: TaskSpec) -> Model:
        """Return the model, or raise unless it fits the task."""
        if task.loss != SQUARED and task.privacy is not None and task.privacy.unit == RECORD:
            raise MisfitError(
                "this task clips each rating separately, but its loss ranks items and has no ratings; ask the "
                "operators for a different task"
            )
        if self.epochs > 1 and task.privacy is not None and task.privacy.unit == RECORD:
            raise MisfitError(
                "this task clips each rating separately, so a round must be a single epoch; open the device "
                "with epochs=1"
            )
        model: Model = self.model or MatrixFactorisation(dimension=task.row_width - 1, loss=task.loss)
        if follows(model) != (task.loss == NEXT):
            raise MisfitError(
                "the loss `next` needs a model of events in time order, such as SASRec, and such a model needs "
                "the loss `next`; open the device with the task's model"
            )
        if (model.row_width, model.dense_size) != (task.row_width, task.dense_size):
            raise MisfitError(
                f"the task has rows of {task.row_width} numbers and a dense part of {task.dense_size}, but the "
                f"model has {model.row_width} and {model.dense_size}; open the device with the task's model"
            )
        return model

    def transport_for(self, task: TaskSpec) -> str:
        """Return how the messages of this task's rounds travel."""
        if self.transport == RELAYED and not task.relays:
            raise PolicyError("this task is not relayed; open the device with transport=None or transport='direct'")
        return RELAYED if task.relays and self.transport != DIRECT else DIRECT

    def check_bytes(self, task: TaskSpec) -> None:
        """Raise if the policy's budget is below what a round needs."""
        self.policy.check_bytes(task, relayed=self.transport_for(task) == RELAYED)

    def rate_for(self, task: TaskSpec) -> float:
        """Return the learning rate of the private part."""
        return decimal(task.row_rate) if self.rate is None else self.rate

    def note(self, misconduct: Misconduct) -> None:
        """Record a server's misconduct. What is sent must not depend on whether the home can store it."""
        with suppress(HomeError):
            self.vault.note(misconduct, date_of(self.wall_clock()))

    def select(self, round_: RoundSpec, random_bytes: RandomBytes) -> Selection:
        """Return the data that this device uses in a round: ratings, or events or words, depending on the task."""
        model = self.model_for(round_.task)
        if not follows(model):
            return select(round_, self.vault.ratings(), self.held_out(), random_bytes)
        events = self.events(round_.task)
        return select_events(round_, model, events, hold_out=self.hold_out > 0, random_bytes=random_bytes)

    def events(self, task: TaskSpec) -> Indices:
        """Return the items of all events in time order; where the model reads texts, the rows of their words."""
        model = self.model_for(task)
        if not reads_texts(model):
            return self.vault.events().items
        return self.vault.words(lambda texts: self.vocabulary(task).encode(map(model.split, texts)))

    def vocabulary(self, task: TaskSpec) -> Vocabulary:
        """Return the words of a task; its catalogue must already be downloaded."""
        return Vocabulary.of(CatalogueFile(self.vault.public_folder, task).load())

    def own_data(self, task: TaskSpec, random_bytes: RandomBytes, *, held_out: bool = True) -> Ratings:
        """Return the data for the private part: all ratings or the newest events, or without held-out data."""
        model = self.model_for(task)
        if follows(model):
            events = in_catalogue(self.events(task), task.items)
            return newest(events if held_out or not self.hold_out else before_last(events), model.length)
        known, kept = self.vault.ratings(), self.held_out()
        mine = known if held_out else {item: rating for item, rating in known.items() if item not in kept}
        return to_fit(task, mine, known, random_bytes)

    def known_items(self, task: TaskSpec) -> Indices:
        """Return the items that the owner has rated or chosen."""
        if task.loss == NEXT:
            return np.unique(self.events(task))
        return np.array(list(self.vault.ratings()), dtype=np.int64)

    def held_out(self) -> HoldOut:
        """Return which ratings are held out."""
        return HoldOut(key=self.vault.hold_out_key, fraction=self.hold_out, names=self.vault.names())
