"""Devices in one round: each runs the SDK's own code, and its update goes through the protocol or into a plain sum.

    private   sessions, keys and answers as over a network; the result is two shares, one from each server
    plain     rows are read from the table and updates are added in clear; the result is one sum
    blurred   as plain, but each device adds noise to its whole update before sending it

A plain run can be lossy: a compressor of updates is then applied to each device's rows.

The first two give the same total to the last bit, except if an item cannot be placed in its round: about one device
in a million loses one. Devices of a round are independent of each other, and sums in the ring are not rounded, so a
round can be divided among any number of processes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from secemb_party.evaluation import BATCH, Evaluation, KeysMessage, SessionBodies, Share, blur
from secemb_party.storage import Model
from secemb_sdk.models import PrivateState
from secemb_sdk.models.update import Numbers, fit_bound
from secemb_sdk.round.route import ReadRows
from secemb_sdk.round.selection import Selection
from secemb_sdk.round.session import SESSION_BYTES, DeviceSession, Messages
from secemb_sdk.round.upload import make_upload
from secemb_shared import row_access
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import EVALUATE
from secemb_shared.randomness import Indices, RandomBytes, sample
from secemb_shared.row_words import Rows
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING
from secemb_tools.simulation.devices import Devices, SimulatedDevice

PRIVATE, PLAIN, BLURRED = "private", "plain", "blurred"


Lossy = Callable[[RoundSpec, Indices, Numbers, RandomBytes], Numbers]  # a device's rows → the rows received


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Part:
    """Some of the devices of one round, and their inputs."""

    way: str
    number: int
    model: Model
    people: dict[int, PrivateState | None]  # with their private parts
    lossy: Lossy | None = None  # of a plain run; None: updates arrive unchanged


@dataclass(slots=True, kw_only=True)
class Counts:
    """Counts of what happened to devices."""

    sessions: int = 0
    clipped: int = 0  # sessions with an update that was clipped to the task's bound
    failed: int = 0  # sessions that uploaded zeros

    def add(self, other: "Counts") -> None:
        """Add other counts."""
        self.sessions += other.sessions
        self.clipped += other.clipped
        self.failed += other.failed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Outcome:
    """The result of a part: one share from each server, or the plain sum."""

    shares: list[Share]
    moved: dict[int, PrivateState] = field(default_factory=dict)  # private parts that have changed
    counts: Counts = field(default_factory=Counts)

    def join(self, other: "Outcome") -> None:
        """Add another part of the same round."""
        for own, more in zip(self.shares, other.shares, strict=True):
            for total, values in ((own.rows, more.rows), (own.dense, more.dense), (own.sums, more.sums)):
                np.add(total, values, out=total)
        self.moved.update(other.moved)
        self.counts.add(other.counts)


def take_part(devices: Devices, part: Part) -> Outcome:
    """Let some devices take part in a round."""
    world, model = devices.world, part.model
    round_ = RoundSpec(
        task=world.task,
        number=part.number,
        model_version=model.version,
        model_digest=model.digest,
        kind=world.schedule.kind_of(part.number),
    )
    chosen = []
    for person, private in part.people.items():
        device = devices[person]
        device.memory.keep_private(private)
        chosen.append((device, world.random_bytes("session", part.number, person)))
    add = WAYS[part.way] if part.lossy is None else partial(add_plainly, lossy=part.lossy)
    return add(round_, model, chosen)


Chosen = Sequence[tuple[SimulatedDevice, RandomBytes]]  # the participants, and their sources of random bytes
Add = Callable[[RoundSpec, Model, Chosen], Outcome]


class PlainSession(DeviceSession):
    """A session without secrets: it reads rows from the table, and adds its updates to a plain sum."""

    def __init__(
        self,
        round_: RoundSpec,
        items: Indices,
        *,
        table: Rows,
        total: Share,
        random_bytes: RandomBytes,
        lossy: Lossy | None = None,
    ) -> None:
        self.round, self._table, self._total = round_, table, total
        self._lossy, self._random_bytes = lossy, random_bytes
        if items.size > round_.task.capacity:
            random_bytes(SESSION_BYTES)  # a session's id is drawn first, so that the same items take part
            items = sample(items, round_.task.capacity, random_bytes)
        self._items = items

    def read_rows(self) -> tuple[Indices, Rows]:
        """Return the items that take part and their rows."""
        return self._items, self._table[self._items]

    def write(self, items: Indices, updates: Numbers, dense: Numbers | None = None) -> Messages:
        """Add the updates to the sum."""
        task, total = self.round.task, self._total
        if self._lossy is not None:
            updates, _ = fit_bound(self._lossy(self.round, items, updates, self._random_bytes), task)
        total.rows[items] += task.ring.encode(updates, bound=task.bound)
        if dense is not None and dense.size:
            np.add(total.dense, task.ring.encode(dense, bound=task.bound), out=total.dense)
        return _IN_THE_OPEN

    def write_sums(self, values: Numbers) -> Messages:
        """Add the numbers of an evaluation or a survey to the sum."""
        np.add(self._total.sums, SUM_RING.encode(values, bound=SUM_BOUND), out=self._total.sums)
        return _IN_THE_OPEN


_IN_THE_OPEN = b"", b""  # placeholder for messages that are not sent


def add_privately(round_: RoundSpec, model: Model, chosen: Chosen) -> Outcome:
    """Return the shares of both servers; neither sees a rating, an item or an update."""
    tagged = row_access.tag_rows(round_, model.rows)
    servers = [Evaluation(round_, party, tagged) for party in (0, 1)]
    outcome = Outcome(shares=[Share.empty(round_), Share.empty(round_)])
    for first in range(0, len(chosen), BATCH):
        some = chosen[first : first + BATCH]
        selections = [device.select(round_, random_bytes) for device, random_bytes in some]
        sessions = [
            DeviceSession(round_, selection.items, random_bytes=random_bytes)
            for (_, random_bytes), selection in zip(some, selections, strict=True)
        ]
        asked = [[KeysMessage(one.session_id, one.keys[party]) for one in sessions] for party in (0, 1)]
        answers = zip(servers[0].answer(asked[0]), servers[1].answer(asked[1]), strict=True)
        uploads = [
            _upload(outcome, one, selection, session, partial(session.read, both), model)
            for one, selection, session, both in zip(some, selections, sessions, answers, strict=True)
        ]
        for party, (server, share) in enumerate(zip(servers, outcome.shares, strict=True)):
            bodies = [
                SessionBodies(session.session_id, session.keys[party], upload[party])
                for session, upload in zip(sessions, uploads, strict=True)
            ]
            server.add(bodies, share)
    return outcome


def add_plainly(round_: RoundSpec, model: Model, chosen: Chosen, *, lossy: Lossy | None = None) -> Outcome:
    """Return the sum computed in clear from all ratings, rows and updates."""
    outcome = Outcome(shares=[Share.empty(round_)])
    for one in chosen:
        _add_in_the_open(outcome, outcome.shares[0], round_, model, one, lossy=lossy)
    return outcome


def add_blurred(round_: RoundSpec, model: Model, chosen: Chosen) -> Outcome:
    """Return the sum of updates to which the devices have added noise, each as a whole."""
    outcome = Outcome(shares=[Share.empty(round_)])
    for one in chosen:
        outcome.join(blurred_update(round_, model, one))
    return outcome


def blurred_update(round_: RoundSpec, model: Model, one: tuple[SimulatedDevice, RandomBytes]) -> Outcome:
    """Return the update of a device that adds its own noise.

    It is as large as the model, because a row without noise would reveal that the device has not rated its item.
    """
    own = Outcome(shares=[Share.empty(round_)])
    _add_in_the_open(own, own.shares[0], round_, model, one)
    blur(round_, own.shares[0], one[1])
    return own


WAYS: dict[str, Add] = {PRIVATE: add_privately, PLAIN: add_plainly, BLURRED: add_blurred}


def _add_in_the_open(
    outcome: Outcome,
    total: Share,
    round_: RoundSpec,
    model: Model,
    one: tuple[SimulatedDevice, RandomBytes],
    *,
    lossy: Lossy | None = None,
) -> None:
    device, random_bytes = one
    selection = device.select(round_, random_bytes)
    session = PlainSession(
        round_, selection.items, table=model.rows, total=total, random_bytes=random_bytes, lossy=lossy
    )
    _upload(outcome, one, selection, session, session.read_rows, model)


def _upload(
    outcome: Outcome,
    one: tuple[SimulatedDevice, RandomBytes],
    selection: Selection,
    session: DeviceSession,
    read_rows: ReadRows,
    model: Model,
) -> Messages:
    """Return a device's upload, and record its outcome."""
    device, random_bytes = one
    table = model.rows if session.round.kind == EVALUATE and session.round.task.ranks_whole_table else None
    upload = make_upload(device.context, session, selection, read_rows, model.dense, random_bytes, table=table)
    if upload.private is not None:
        outcome.moved[device.person] = upload.private
    outcome.counts.add(Counts(sessions=1, clipped=int(upload.clipped), failed=int(upload.trouble is not None)))
    return upload.messages
