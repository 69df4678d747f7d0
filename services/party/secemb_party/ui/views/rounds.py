"""One round as the pages show it: how far it is, how long each phase took, and what it moved."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from secemb_party.evaluation import upload_bytes
from secemb_party.ledger import Counts, RoundRecord, RoundState
from secemb_party.service import Party
from secemb_shared.messages import RoundSpec, Sizes

DONE, NOW, AHEAD, FAILED = "done", "now", "ahead", "failed"
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
    count: int | None = None  # sessions that got this far; None where a count means nothing
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """How long a round was in one state."""

    name: str
    began_at: float
    seconds: float | None  # None: it is still there


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    """A round, its counts, and what follows from both."""

    record: RoundRecord
    counts: Counts
    steps: list[Step]
    received: int  # bytes of accepted messages
    sent: int

    @property
    def counted(self) -> int | None:
        """Return how many sessions the sum is over."""
        return None if self.record.sealed_sessions is None else len(self.record.sealed_sessions)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStory:
    """What the page of one round shows besides."""

    phases: list[Phase]
    refused: Mapping[str, int] | None  # None: not recorded
    peer_share: str | None
    result: Mapping[str, float]
    digests: Mapping[str, bytes | None] = field(default_factory=dict)  # of the model before and after


async def round_facts(party: Party, record: RoundRecord) -> RoundFacts:
    """Return the counts and the progress of a round."""
    counts = await party.ledger.counts(record.round_id)
    sizes, spec = Sizes.of(party.task), RoundSpec.decode(record.spec, party.task)
    return RoundFacts(
        record=record,
        counts=counts,
        steps=_steps(record, counts, party.role),
        received=counts.keys * sizes.keys + counts.updates * upload_bytes(spec, party.role),
        sent=counts.keys * sizes.answer,
    )


async def round_story(party: Party, record: RoundRecord) -> RoundStory:
    """Return everything that is recorded about a round."""
    versions = {one.version: one.digest for one in await party.ledger.versions(party.task.task_id)}
    ended = await _told(party, record, record.ended_at)
    refused = party.refusals() if record.ended_at is None else ended.get("refused")
    summed = await _told(party, record, record.reconstructed_at)
    results = await party.ledger.recent_events("result", limit=2000)
    result = next((one.data for one in results if one.data.get("round") == record.number), {})
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
    """Return what the operator was told when the round entered the state that it entered then."""
    if at is None:
        return {}
    found = await party.ledger.recent_events("round", at=at)
    told: dict[str, Any] = {}
    for event in found:
        if event.data.get("round") == record.number:
            told |= event.data
    return told


def _steps(record: RoundRecord, counts: Counts, role: int) -> list[Step]:
    taking = NOW if record.state is RoundState.OPEN else DONE
    joined = counts.admitted if role == 0 else None  # devices join at server 0
    steps = [
        Step("Joined", taking, joined, record.opened_at),
        Step("Keys", taking, counts.keys),
        Step("Updates", taking, counts.updates),
    ]
    if record.state is RoundState.ABORTED:
        return [*steps, Step("Aborted", FAILED, None, record.ended_at)]
    sealed = None if record.sealed_sessions is None else len(record.sealed_sessions)
    return [
        *steps,
        Step("Sealed", _progress(record.state, RoundState.SEALED), sealed, record.sealed_at),
        Step("Shared", _progress(record.state, RoundState.SHARED), None, record.shared_at),
        Step("Published", _progress(record.state, RoundState.PUBLISHED), None, record.ended_at),
    ]


def _progress(state: RoundState, step: RoundState) -> str:
    """Return whether a round has passed a step, is on its way there, or has other steps before it."""
    reached, wanted = _ORDER.index(state), _ORDER.index(step)
    if reached >= wanted:
        return DONE
    before = {RoundState.SEALED: RoundState.SEALING, RoundState.SHARED: RoundState.SEALED}
    return NOW if reached >= _ORDER.index(before.get(step, RoundState.SHARED)) else AHEAD


def _phases(record: RoundRecord, role: int) -> list[Phase]:
    entered = [("open", record.opened_at), ("sealing", record.sealing_at), ("adding", record.sealed_at)]
    if role == 0:
        entered += [("reconstructing", record.shared_at), ("publishing", record.reconstructed_at)]
    else:  # server 0 does the rest
        entered += [("waiting for server 0", record.shared_at)]
    known = [(name, at) for name, at in entered if at is not None]
    ends: list[float | None] = [*(at for _, at in known[1:]), record.ended_at]
    return [
        Phase(name, at, None if end is None else max(0.0, end - at))
        for (name, at), end in zip(known, ends, strict=True)
    ]
