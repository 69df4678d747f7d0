"""The public specification of a task and of a round: every length and every derivation follows from it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Self

from secemb_shared.dpf import HASH_BYTES, LeafTable
from secemb_shared.errors import SecEmbError, SpecError
from secemb_shared.labels import PROTOCOL, Label
from secemb_shared.layout import Geometry, Layout, layout_for
from secemb_shared.messages import canonical
from secemb_shared.messages.measures import (
    MOST_STRANGERS,
    SUM_NAMES,
    WHOLE_TABLE,
    EvaluationSums,
    EventSums,
    count_strangers,
)
from secemb_shared.messages.privacy import Privacy
from secemb_shared.norm import NormShape
from secemb_shared.ring import Ring
from secemb_shared.row_words import ROW_BITS, SINGLE, words_of
from secemb_shared.secure_sum import SUM_RING

SMALLEST_COHORT = 2  # a sum over one session would reveal it
OPTIMISERS = ("adam", "lazy-adam", "momentum", "sgd")
SCHEDULES = ("constant", "cosine")  # of the rates over a task's rounds
SQUARED, BPR, SOFTMAX, NEXT = "squared", "bpr", "softmax", "next"
# For ratings; for pairs of an item and a stranger; for an item among strangers; for the next event of a person, as
# defined by the model.
LOSSES = (SQUARED, BPR, SOFTMAX, NEXT)
TRAIN, SURVEY, EVALUATE = "train", "survey", "evaluate"
SURVEY_CAPACITIES = tuple(2**power for power in range(3, 13))  # a survey shows how many items each of them would keep
# How many numbers a round of each kind adds up in its secure sum. Training: none. Survey: the number of a device's
# items, how far its ratings are above and below the centre, their squares, and how many of its items each capacity
# would keep. Evaluation: what it measures of a model that learns from ratings or choices. `RoundSpec.sum_size` is the
# size for a task.
SUM_SIZES = {TRAIN: 0, SURVEY: 4 + len(SURVEY_CAPACITIES), EVALUATE: len(SUM_NAMES)}
LARGEST_SUM = 2**23 - 1  # sessions that a secure sum holds without wrapping around, given its ring and bound
LARGEST_MESSAGE = 2**28  # bytes of one message
OPTIONAL = {"row_bits": SINGLE}  # members that are left out of the canonical form where they have these values


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """One training job. Immutable: `task_id` is the SHA-256 of the canonical form."""

    name: str
    items: int  # m, rows of the table
    row_width: int  # w, numbers per row
    dense_size: int  # numbers outside the table
    capacity: int  # m', items of a device that take part in a round
    tables: int  # layout: 1 table with 1 bin is the paper's direct layout
    bins: int
    ring_bits: int
    fraction_bits: int
    bound: int  # largest absolute element of one device's update, in the ring's smallest steps
    cohort: int  # most sessions of a round
    min_cohort: int  # smallest number of sessions for which a server releases its share of the sum
    rounds: int = 100
    join_seconds: int = 60  # how long devices can join a round
    upload_seconds: int = 600  # how long after the opening updates are accepted
    loss: str = SQUARED  # the loss that devices minimise
    optimiser: str = "adam"
    guard: str = "8"  # limit on a row's mean gradient, as a multiple of its usual length; 0: no limit
    row_rate: str = "0.02"  # of all numbers of a row but the last
    bias_rate: str = "0.05"  # of the last number of a row: the bias of its item
    dense_rate: str = "0.001"
    row_decay: str = "0"  # of each step: this times a row is added to its mean gradient
    bias_decay: str = "0"  # the same for a bias
    schedule: str = "cosine"  # of all rates: cosine decay to zero after the last round, or constant
    seed: int = 0  # of the initial weights
    initial_scale: str = "0.05"  # standard deviation of the initial weights
    centre: str = "0"  # of the ratings, such as the mean found by a survey: models see (rating − centre) / spread
    spread: str = "1"  # of the ratings, such as the standard deviation found by a survey
    lowest: str = ""  # possible rating; predictions are clipped to it; empty if unknown
    highest: str = ""  # the same
    catalogue: str = ""  # SHA-256 of the file of ids and titles; empty if there is none
    relay_key: str = ""  # server 1's identity (Ed25519, hexadecimal); empty if devices must talk to both servers
    identity0: str = ""  # server 0's identity; both identities together sign the task's successor; empty: it has none
    predecessor: str = ""  # id of the task that this one continues; empty if it is the first
    norm_bound: int = 0  # in steps: devices prove that their whole update is at most about this long; 0: no proof
    row_bits: int = SINGLE  # of a number in a row that devices read: 32, or 16 for half precision
    privacy: Privacy | None = None  # noise on the sums; None: only the cohort protects devices

    def __post_init__(self) -> None:
        try:
            self._check()
            canonical.encode(self._fields())
        except SpecError:
            raise
        except SecEmbError as error:
            raise SpecError(str(error)) from error

    @cached_property
    def task_id(self) -> bytes:
        """Return the 32 bytes that identify this task."""
        return canonical.digest(self.encode())

    @cached_property
    def geometry(self) -> Geometry:
        """Return the shape of each device's messages."""
        direct = self.tables == 1 and self.bins == 1
        slots_per_bin = self.capacity if direct else 1
        return Geometry(items=self.items, tables=self.tables, bins=self.bins, slots_per_bin=slots_per_bin)

    @cached_property
    def ring(self) -> Ring:
        """Return the ring in which updates are added."""
        return Ring(bits=self.ring_bits, fraction_bits=self.fraction_bits)

    @property
    def row_words(self) -> int:
        """Return how many 32-bit words a row has when it is read, without its tag."""
        return words_of(self.row_width, self.row_bits)

    @cached_property
    def norm_shape(self) -> NormShape | None:
        """Return the shape of the sessions' norm proofs, if the task requires them."""
        if not self.norm_bound:
            return None
        return NormShape(
            bits=self.ring_bits,
            slots=self.geometry.slots,
            width=self.row_width,
            dense=self.dense_size,
            norm_bound=self.norm_bound,
        )

    @property
    def measured(self) -> type[EvaluationSums] | type[EventSums]:
        """Return the type of the numbers in its evaluations."""
        return EventSums if self.loss == NEXT else EvaluationSums

    @property
    def ranks_whole_table(self) -> bool:
        """Return whether evaluations rank in the whole catalogue: with events, and if the table is small enough."""
        return self.loss == NEXT and 4 * self.items * self.row_width <= WHOLE_TABLE

    @property
    def strangers(self) -> int:
        """Return how many strangers held-out items are ranked among."""
        return MOST_STRANGERS if self.ranks_whole_table else count_strangers(self.capacity)

    @property
    def relays(self) -> bool:
        """Return whether devices may send everything through server 0."""
        return bool(self.relay_key)

    @property
    def identities(self) -> tuple[str, str] | None:
        """Return the public keys that sign a successor, those of server 0 and server 1; None if there can be none."""
        return (self.identity0, self.relay_key) if self.identity0 and self.relay_key else None

    def encode(self) -> bytes:
        """Return the canonical form."""
        return canonical.encode(self._fields())

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Read the canonical form; unknown and missing fields are refused."""
        names = {field.name: field.type for field in fields(cls)} | {"privacy": dict}
        written = canonical.decode(data)
        if any(written.get(name) == usual for name, usual in OPTIONAL.items()):
            raise SpecError("a field must be left out where it has its usual value")
        found = _expect(OPTIONAL | dict(written), names)
        return cls(**found | {"privacy": Privacy.read(found["privacy"]) if found["privacy"] else None})

    def _fields(self) -> dict[str, Any]:
        privacy = {} if self.privacy is None else self.privacy.fields()
        members = {"protocol": PROTOCOL.decode(), **asdict(self), "privacy": privacy}
        return {name: value for name, value in members.items() if name not in OPTIONAL or value != OPTIONAL[name]}

    def _check(self) -> None:
        plain = [field for field in fields(self) if field.name != "privacy"]
        if any(type(getattr(self, field.name)) is not field.type for field in plain):
            raise SpecError("task fields must be integers or strings")
        if not 1 <= len(self.name) <= 100:
            raise SpecError("the task name must be 1 to 100 characters")
        if not 1 <= self.row_width <= 2**16 or not 0 <= self.dense_size <= 2**26:
            raise SpecError("row width must be 1 to 65,536 and dense size 0 to 2^26")
        if self.row_bits not in ROW_BITS:
            raise SpecError("the numbers of a row must have 16 or 32 bits")
        if not 1 <= self.capacity <= self.items:
            raise SpecError("capacity (m') must be at least 1 and at most the number of items")
        if not SMALLEST_COHORT <= self.min_cohort <= self.cohort:
            raise SpecError(f"min_cohort must be at least {SMALLEST_COHORT} and at most the cohort")
        self._check_privacy()
        self._check_norm()
        self._check_training()
        width = max(self.row_width * self.ring.element_bytes, 4 * (self.row_words + 1))
        slots, depth = self.geometry.slots, self.geometry.depth  # refuses an impossible shape
        longest = max(width, 17 * depth + HASH_BYTES)
        if slots * longest + self.dense_size * self.ring.element_bytes > LARGEST_MESSAGE:
            raise SpecError(f"a message would be longer than {LARGEST_MESSAGE} bytes; use fewer slots or shorter rows")

    def _check_norm(self) -> None:
        """Refuse a bound that cannot be proved, or that honest devices could not keep."""
        if self.norm_bound < 0:
            raise SpecError("norm_bound must be a number of ring steps, or 0 for no bound")
        if self.norm_shape is None or self.privacy is None:
            return
        if self.norm_bound < self.privacy.longest(self.capacity):
            raise SpecError("norm_bound must be at least the longest update that the privacy settings allow")

    def _check_privacy(self) -> None:
        """Refuse sums that could wrap around, noise included."""
        privacy, tail = self.privacy, 0
        if privacy is not None:
            if not isinstance(privacy, Privacy):
                raise SpecError("privacy must be an object")
            tail = max(privacy.rows.tail, privacy.dense.tail)
            if privacy.dense_clip and not self.dense_size:
                raise SpecError("dense_clip requires a task with a dense part")
            for kind in (SURVEY, EVALUATE):
                noise = privacy.sums(kind)
                if noise is not None:
                    SUM_RING.check_budget(cohort=self.cohort, bound=noise.clip, noise_tail=noise.tail)
        self.ring.check_budget(cohort=self.cohort, bound=self.bound, noise_tail=tail)

    def _check_training(self) -> None:
        if not 1 <= self.rounds <= 2**32 or self.seed < 0:
            raise SpecError("a task must have 1 to 2^32 rounds and a non-negative seed")
        if not 1 <= self.join_seconds <= self.upload_seconds <= 30 * 86_400:
            raise SpecError(
                "join_seconds must be at least 1, and upload_seconds must be between join_seconds and 30 days"
            )
        if self.optimiser not in OPTIMISERS:
            raise SpecError(f"the optimiser must be one of {', '.join(OPTIMISERS)}")
        if self.schedule not in SCHEDULES or self.loss not in LOSSES:
            raise SpecError(
                f"the schedule must be one of {', '.join(SCHEDULES)}, and the loss one of {', '.join(LOSSES)}"
            )
        if 0 < canonical.decimal(self.guard) < 1:
            raise SpecError("the guard must be 0 (disabled) or a multiple of at least 1")
        rates = self.row_rate, self.bias_rate, self.dense_rate, self.row_decay, self.bias_decay, self.initial_scale
        for number in rates:
            canonical.decimal(number)
        self._check_scale()
        for name in ("catalogue", "relay_key", "identity0", "predecessor"):
            if getattr(self, name) and not _is_hex(getattr(self, name), 32):
                raise SpecError(f"{name} must be 64 lower-case hexadecimal digits, or empty")
        if self.identity0 and self.identity0 == self.relay_key:
            raise SpecError("identity0 and relay_key must be different keys, of two different operators")

    def _check_scale(self) -> None:
        canonical.signed_decimal(self.centre)
        if not canonical.decimal(self.spread) > 0:
            raise SpecError("the rating spread must be greater than zero")
        ends = [canonical.signed_decimal(end) for end in (self.lowest, self.highest) if end]
        if len(ends) == 2 and not ends[0] < ends[1]:
            raise SpecError("the lowest rating must be below the highest")


@dataclass(frozen=True, kw_only=True)
class RoundSpec:
    """One round of a task: the model version that devices read, and the labels of everything derived in it."""

    task: TaskSpec
    number: int
    model_version: int
    model_digest: bytes
    kind: str = TRAIN

    def __post_init__(self) -> None:
        if len(self.model_digest) != 32:
            raise SpecError("model_digest must be 32 bytes, the SHA-256 of the published model")
        for value in (self.number, self.model_version):
            if not 0 <= value <= canonical.LARGEST_NUMBER:
                raise SpecError("round and model version must be whole numbers below 2^53")
        if self.kind not in SUM_SIZES:
            raise SpecError(f"the round kind must be one of {', '.join(SUM_SIZES)}")
        if self.sum_size and self.task.cohort > LARGEST_SUM:
            raise SpecError(f"a round with a secure sum needs a task with a cohort of at most {LARGEST_SUM:,}")

    def encode(self) -> bytes:
        """Return the canonical form, which contains the id of the task."""
        return canonical.encode(
            {
                "kind": self.kind,
                "model_digest": self.model_digest.hex(),
                "model_version": self.model_version,
                "protocol": PROTOCOL.decode(),
                "round": self.number,
                "task": self.task.task_id.hex(),
            }
        )

    @classmethod
    def decode(cls, data: bytes, task: TaskSpec) -> Self:
        """Read the canonical form of a round of `task`."""
        names = {"kind": str, "model_digest": str, "model_version": int, "round": int, "task": str}
        found = _expect(canonical.decode(data), names)
        if found["task"] != task.task_id.hex():
            raise SpecError("this round belongs to another task")
        digest = found["model_digest"]
        if not _is_hex(digest, 32):
            raise SpecError("model_digest must be 64 lower-case hexadecimal digits")
        return cls(
            task=task,
            number=found["round"],
            model_version=found["model_version"],
            model_digest=bytes.fromhex(digest),
            kind=found["kind"],
        )

    @cached_property
    def digest(self) -> bytes:
        """Return the 32 bytes that identify this round."""
        return canonical.digest(self.encode())

    @property
    def sum_size(self) -> int:
        """Return the length of the round's secure sum; 0 for a training round."""
        return len(self.task.measured.names()) if self.kind == EVALUATE else SUM_SIZES[self.kind]

    def label(self, session_id: bytes) -> Label:
        """Return the label of everything derived for one session."""
        return Label(self.task.task_id, self.number, session_id)

    @property
    def model_label(self) -> Label:
        """Return the label of everything derived for the model version; it is the same in every round that reads it."""
        return Label(self.task.task_id, self.model_version)

    @cached_property
    def layout(self) -> Layout:
        """Return the layout of items in this round; the permutations change every round."""
        label = Label(self.task.task_id, self.number)
        return layout_for(self.task.geometry, capacity=self.task.capacity, label=label)

    @cached_property
    def leaf_table(self) -> LeafTable:
        """Return the item of each leaf; servers need this, devices do not."""
        return LeafTable(self.task.geometry, self.layout.order())


def _is_hex(text: str, length: int) -> bool:
    return len(text) == 2 * length and set(text) <= set("0123456789abcdef")


def _expect(found: Mapping[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named fields, checked for type; refuse any other field."""
    rest = dict(found)
    if rest.pop("protocol", None) != PROTOCOL.decode():
        raise SpecError(f"not a specification of protocol {PROTOCOL.decode()}")
    if rest.keys() != names.keys():
        raise SpecError("a specification has unknown or missing fields")
    for name, kind in names.items():
        if type(rest[name]) is not kind:
            raise SpecError(f"field {name} has the wrong type")
    return rest
