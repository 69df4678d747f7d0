"""One round as shown on pages: its progress, the duration of each phase, and its traffic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from secemb_party.evaluation import upload_bytes
from secemb_party.ledger import Counts, Event, RoundRecord, RoundState
from secemb_party.service import Party
from secemb_shared.messages import RoundSpec, Sizes
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

RESULTS = 2000  # of evaluations and surveys, the newest
DONE, NOW, AHEAD, FAILED = "done", "now", "ahead", "failed"
ENDED = {SURVEY: "surveyed", EVALUATE: "evaluated"}  # rounds that publish no model
_ORDER = [
    RoundState.OPEN,
    RoundState.SEALING,
    RoundState.SEALED,
    RoundState.SHARED,
    RoundState.RECONSTRUCTED,
    RoundState.PUBLISHED,
]


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a round's progress."""

    name: str
    state: str
    count: int | None = None  # sessions that got this far; None if a count is meaningless
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """The time that a round spent in one state."""

    name: str
    began_at: float
    ended_at: float | None  # None: still in this state

    @property
    def seconds(self) -> float | None:
        """Return how long the round was in this state."""
        return None if self.ended_at is None else max(0.0, self.ended_at - self.began_at)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    """A round, its counts, and values derived from them."""

    record: RoundRecord
    counts: Counts
    joined: int  # sessions with a seat, and those that a round still waits for; only on server 0
    steps: list[Step]
    received: int  # bytes of accepted messages
    sent: int
    rmse: float | None = None  # result of an evaluation; only server 0 learns it

    @property
    def outcome(self) -> str:
        """Return the state in a word: a round that has ended has trained, surveyed or evaluated."""
        done = self.record.state is RoundState.PUBLISHED
        return ENDED.get(self.record.kind, self.record.state) if done else self.record.state

    @property
    def silent(self) -> int:
        """Return how many sessions joined but sent no keys in time, so that they hold no seat."""
        return max(0, self.counts.admitted - self.joined)

    @property
    def counted(self) -> int | None:
        """Return the number of sessions in the sum."""
        return None if self.record.sealed_sessions is None else len(self.record.sealed_sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStory:
    """Further content of the page of one round."""

    phases: list[Phase]
    refused: Mapping[str, int] | None  # None: not recorded
    peer_share: str | None
    result: Mapping[str, float]
    digests: Mapping[str, bytes | None] = field(default_factory=dict)  # of the model before and after


async def results_by_round(party: Party) -> dict[int, Event]:
    """Return the results of evaluations and surveys by round; a repeated step counts once."""
    events = await party.ledger.recent_events("result", limit=RESULTS, task=party.task.task_id)
    return {int(event.data["round"]): event for event in events}


async def facts_of(party: Party, records: Iterable[RoundRecord]) -> list[RoundFacts]:
    """Return the facts of several rounds, with the error from each evaluation."""
    results = await results_by_round(party)
    found = [await round_facts(party, record) for record in records]
    return [
        replace(one, rmse=results[one.record.number].data.get("rmse")) if one.record.number in results else one
        for one in found
    ]


async def round_facts(party: Party, record: RoundRecord) -> RoundFacts:
    """Return the counts and the progress of a round."""
    counts = await party.ledger.counts(record.round_id)
    joined = await _joined(party, record, counts)
    sizes, spec = Sizes.of(party.task), RoundSpec.decode(record.spec, party.task)
    return RoundFacts(
        record=record,
        counts=counts,
        joined=joined,
        steps=_steps(record, counts, joined, party),
        received=counts.keys * sizes.keys + counts.updates * upload_bytes(spec, party.role),
        sent=counts.keys * sizes.answer,
    )


async def _joined(party: Party, record: RoundRecord, counts: Counts) -> int:
    """Return how many sessions have a seat or may still take one, without those that sent no keys in time."""
    if record.state is not RoundState.OPEN or party.role == 1:
        return counts.keys
    seats = await party.ledger.seats(record.round_id, party.clock() - party.seat_seconds)
    return max(counts.keys, seats.taken + seats.expected)


async def round_story(party: Party, record: RoundRecord) -> RoundStory:
    """Return everything that is recorded about a round."""
    versions = {one.version: one.digest for one in await party.ledger.versions(party.task.task_id)}
    ended = await _told(party, record, record.ended_at)
    refused = party.refusals() if record.ended_at is None else ended.get("refused")
    summed = await _told(party, record, record.reconstructed_at)
    found = (await results_by_round(party)).get(record.number)
    result = {} if found is None else found.data
    return RoundStory(
        phases=_phases(record, party.role),
        refused=refused,
        peer_share=summed.get("peer_share"),
        result={name: value for name, value in result.items() if name != "round"},
        digests={
            "before": versions.get(record.model_version),
            "after": None if record.next_version is None else versions.get(record.next_version),
        },
    )


async def _told(party: Party, record: RoundRecord, at: float | None) -> Mapping[str, Any]:
    """Return the remark that was logged when the round entered a state at this time."""
    if at is None:
        return {}
    found = await party.ledger.recent_events("round", at=at, task=party.task.task_id)
    told: dict[str, Any] = {}
    for event in found:
        if event.data.get("round") == record.number:
            told |= event.data
    return told


def _steps(record: RoundRecord, counts: Counts, joined: int, party: Party) -> list[Step]:
    steps = _session_steps(record, counts, joined, party)
    if record.state is RoundState.ABORTED:
        return [*steps, Step("Aborted", FAILED, None, record.ended_at)]
    sealed = None if record.sealed_sessions is None else len(record.sealed_sessions)
    if record.state is RoundState.DISCARDED:
        return [
            *steps,
            Step("Sealed", DONE, sealed, record.sealed_at),
            Step("Shared", DONE, None, record.shared_at),
            Step("Discarded", FAILED, None, record.ended_at),
        ]
    last = ENDED.get(record.kind, "published").capitalize()
    return [
        *steps,
        Step("Sealed", _progress(record.state, RoundState.SEALED), sealed, record.sealed_at),
        Step("Shared", _progress(record.state, RoundState.SHARED), None, record.shared_at),
        Step(last, _progress(record.state, RoundState.PUBLISHED), None, record.ended_at),
    ]


def _session_steps(record: RoundRecord, counts: Counts, joined: int, party: Party) -> list[Step]:
    """Return the steps of devices in an open round; a step that no device has reached yet is ahead."""
    is_open, counted_here = record.state is RoundState.OPEN, party.role == 0  # devices join at server 0
    too_few = counts.updates < party.task.min_cohort  # devices may join until there are enough
    joining = is_open and (too_few or party.clock() < record.join_until) and joined < party.task.cohort
    expected = party.task.cohort if joining else joined
    return [
        Step("Joined", NOW if joining else _reached(joined), joined if counted_here else None, record.opened_at),
        Step("Keys", _reached(counts.keys, now=is_open and counts.keys < expected), counts.keys),
        Step("Updates", _reached(counts.updates, now=is_open and counts.updates < expected), counts.updates),
    ]


def _reached(count: int, *, now: bool = False) -> str:
    return AHEAD if count == 0 else NOW if now else DONE


def _progress(state: RoundState, step: RoundState) -> str:
    """Return whether a round has passed a step, is at it, or has other steps before it."""
    reached, wanted = _ORDER.index(state), _ORDER.index(step)
    if reached >= wanted:
        return DONE
    before = {RoundState.SEALED: RoundState.SEALING, RoundState.SHARED: RoundState.SEALED}
    return NOW if reached >= _ORDER.index(before.get(step, RoundState.SHARED)) else AHEAD


def _phases(record: RoundRecord, role: int) -> list[Phase]:
    entered = [("open", record.opened_at), ("sealing", record.sealing_at), ("adding", record.sealed_at)]
    if role == 0:
        last = "publishing" if record.kind == TRAIN else "ending"  # only training produces a model to publish
        entered += [("reconstructing", record.shared_at), (last, record.reconstructed_at)]
    else:  # the other steps are on server 0 only
        entered += [("waiting for server 0", record.shared_at)]
    known = [(name, at) for name, at in entered if at is not None]
    ends: list[float | None] = [*(at for _, at in known[1:]), record.ended_at]
    return [Phase(name, at, end) for (name, at), end in zip(known, ends, strict=True)]
