"""When a round opens, seals and ends. A pure function: the same facts and time give the same decision.

nothing open          → Succeeded, if the task has a successor
                      → RollBack, if the operator requested an older version of the model
                      → Succeed, if both operators have agreed to a successor, and none has paused the task
                      → Open the next round, or Finished when the task has no more or the privacy budget is spent
                      → Paused, if an operator has paused the task
open, to be aborted   → Abort, on an operator's instruction
open, no deadline     → Idle until a device joins; Abort if something else waits for the end of the round
                      → Paused, if an operator has paused the task: the round has not begun, or waits for others
open, still time      → Wait; seal, if the operator closes the round and both servers hold enough
open, all complete    → Wait for the sessions that server 1 does not hold yet
open, enough complete → Wait for the others during the grace period, then seal without them
open, half complete   → Wait for the others for a multiple of that time, then seal without them
open, time is up      → seal; with too few sessions Idle again, or Abort if some of them were lost
sealing … published   → the next step; an interrupted step is repeated safely

A session that joins while no join window is running begins one: the first session, and any later one if there were too
few. So a round without devices costs nothing, and a slow fleet fills one round instead of failing in many. With random
sampling, devices that do not take part in a round never join it, and a round that waited for them would never end. In
that case the deadlines begin when the round opens, and too few sessions abort it.

A seat is a session's place in a round; it is taken with the session's keys. A session that has joined but sent no keys
does not block others, and the round waits for it only some seconds. Once no more sessions can join, a fraction of the
seats is enough: silent sessions cost the others only the grace period. If more sessions than that are silent, half of
the seats show how long a session takes, and the rest get a multiple of this time.
"""

import math
from dataclasses import dataclass

from secemb_party.budget import may_open
from secemb_party.ledger import RoundState
from secemb_shared.messages.spec import TRAIN

CLOSING_PATIENCE = 86_400.0  # seconds that the last evaluation waits for devices: no later round needs its figures
PANEL_PATIENCE = 600.0  # seconds that an evaluation by the panel waits for its devices, while all others must wait
LOOK_SECONDS = 10.0  # the ledger is read at least this often
_HALF = 0.5  # of the seats, which shows how long a session takes
STRAGGLER_SECONDS = 0.5  # between two queries to server 1 about sessions that it does not hold yet


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts for a decision: the current round and the sessions in it."""

    state: RoundState | None  # None: no round yet, or the last one ended
    next_number: int
    rounds: int  # training rounds of the whole task
    cohort: int
    min_cohort: int
    trained: int = 0  # training rounds whose sum was opened
    next_kind: str = TRAIN
    last_kind: str | None = None  # of the last round that ended
    started: bool = True  # a session has joined, so that there are deadlines
    join_until: float = 0.0
    upload_until: float = 0.0
    seats: int | None = None  # of the round; None: as many as the cohort
    taken: int = 0  # seats taken, by sessions with keys
    admitted: int = 0  # seats that are taken, or will be if sessions that have just joined send keys
    lapses_at: float | None = None  # when the round stops waiting for the keys of the next of these
    complete: int = 0  # sessions whose update is here
    share: float = 1.0  # fraction of the taken seats that suffices to seal once no more sessions can join
    grace: float = 0.0  # seconds that the others then have
    enough_since: float | None = None  # when enough sessions were first seen to be here
    started_at: float = 0.0  # when the join window began
    stragglers: float = 1e6  # the other half of the seats then has this multiple of the time that the first half took
    half_since: float | None = None  # when half of the sessions were first seen to be here
    complete_there: int | None = None  # on server 1, if it was asked
    rollback_to: int | None = None  # the older version that the operator requested
    affordable: bool = True  # the privacy budget covers the next round
    patient: bool = True  # a round waits for devices; false with random sampling
    closing: bool = False  # the open round is an evaluation, and no training round can follow
    panel: bool = False  # only devices of the trusted panel may join the open round
    paused: bool = False  # an operator has paused the task, so that no round begins
    draining: bool = False  # and no session joins the open one
    succeeding: bool = False  # both operators have agreed to a successor
    succeeded: bool = False  # the task has a successor
    close: bool = False  # the operator has requested that the open round be sealed now
    abort: str | None = None  # why an operator is ending the open round


@dataclass(frozen=True, slots=True)
class Open:
    """Open round `number`, of this kind."""

    number: int
    kind: str = TRAIN


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing before `until`, unless a session becomes complete."""

    until: float


@dataclass(frozen=True, slots=True)
class Idle:
    """Do nothing until a device joins: all sessions have arrived, but there are too few."""


@dataclass(frozen=True, slots=True)
class Paused:
    """Do nothing, and let no device join, until the operators resume."""


@dataclass(frozen=True, slots=True)
class Abort:
    """End the round without a sum, on both servers."""

    reason: str


@dataclass(frozen=True, slots=True)
class Advance:
    """Advance the round from `state` to the next one."""

    state: RoundState


@dataclass(frozen=True, slots=True)
class RollBack:
    """Publish the numbers of version `source` as the next version."""

    source: int


@dataclass(frozen=True, slots=True)
class Finished:
    """The task has finished all its training rounds, or all that its privacy budget allows."""


@dataclass(frozen=True, slots=True)
class Succeed:
    """End the task with the successor that both operators have agreed to."""


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The task has a successor, which goes on."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Another process of this server conducts: answer devices with what the ledger says."""


Decision = Open | Wait | Idle | Paused | Abort | Advance | RollBack | Finished | Succeed | Succeeded | Follow


def rest(decision: Decision, now: float, longest: float = LOOK_SECONDS) -> float:
    """Return for how many seconds there is nothing to do, unless something changes."""
    match decision:
        case Finished() | Succeeded() | Idle() | Paused() | Follow():
            return longest
        case Wait(until):
            return min(max(0.0, until - now), longest)
    return 0.0


def decide(facts: Facts, now: float) -> Decision:
    """Return what to do next."""
    if facts.state is None:
        return _between_rounds(facts)
    if facts.state is not RoundState.OPEN:
        return Advance(facts.state)
    if facts.abort is not None:
        return Abort(facts.abort)
    return _in_open_round(facts, now) if facts.started else _idle(facts, now)


def _in_open_round(facts: Facts, now: float) -> Decision:
    if now < facts.upload_until:
        wanted = facts.complete  # sessions that server 1 must hold before the seal
        if closes(facts):
            wanted = facts.min_cohort
        elif _grace_is_over(facts, now):
            wanted = _needed(facts)
        elif _stragglers_had_their_time(facts, now):
            wanted = _half(facts)
        elif not all_here(facts, now):
            return Wait(_next_change(facts, now))
        # A device sends to one server after the other, so sealing without asking server 1 would leave out slow devices.
        if facts.complete_there is not None and facts.complete_there < wanted:
            return Wait(min(now + STRAGGLER_SECONDS, facts.upload_until))
    if facts.complete >= facts.min_cohort:
        return Advance(RoundState.OPEN)
    # The device of a lost session could not come back in this round.
    return _idle(facts, now) if facts.patient and facts.complete == facts.admitted else Abort("too few sessions")


def _next_change(facts: Facts, now: float) -> float:
    """Return when to decide again, even if no device joins or uploads in the meantime."""
    over = facts.enough_since + facts.grace if facts.enough_since is not None else None
    times = (facts.join_until, over, _half_until(facts), facts.lapses_at, facts.upload_until)
    return min(time for time in times if time is not None and time > now)


def _grace_is_over(facts: Facts, now: float) -> bool:
    since = facts.enough_since
    return since is not None and now >= since + facts.grace and enough_here(facts, now)


def _stragglers_had_their_time(facts: Facts, now: float) -> bool:
    until = _half_until(facts)
    return until is not None and now >= until and half_here(facts, now)


def _half_until(facts: Facts) -> float | None:
    """Return how long the other half gets: a multiple of the first half's time, at least the grace period."""
    if facts.half_since is None:
        return None
    return facts.half_since + max(facts.grace, facts.stragglers * (facts.half_since - facts.started_at))


def wants_to_seal(facts: Facts, now: float) -> bool:
    """Return whether sealing depends only on server 1: all sessions are here, or the others' time is up."""
    late = _grace_is_over(facts, now) or _stragglers_had_their_time(facts, now)
    return late or all_here(facts, now) or closes(facts)


def _needed(facts: Facts) -> int:
    """Return how many complete sessions are enough."""
    return max(facts.min_cohort, _share_of(facts.share, facts.admitted, facts))


def _half(facts: Facts) -> int:
    return max(facts.min_cohort, _share_of(_HALF, facts.admitted, facts))


def _share_of(share: float, seats: int, facts: Facts) -> int:
    return math.ceil(share * min(seats, facts.cohort))


def enough_here(facts: Facts, now: float) -> bool:
    """Return whether no more sessions can join, and enough are complete that the others get only the grace period.

    An operator who drains the server keeps devices out, and must not thereby select who is in the sum.
    """
    return _nobody_can_join(facts, now) and facts.complete >= _needed(facts)


def half_here(facts: Facts, now: float) -> bool:
    """Return whether no more sessions can join and half of them are complete, so the time of the others is limited."""
    return _nobody_can_join(facts, now) and facts.complete >= _half(facts)


def _nobody_can_join(facts: Facts, now: float) -> bool:
    return not (joinable(facts, now) or _shut(facts) or facts.state is not RoundState.OPEN)


def closes(facts: Facts) -> bool:
    """Return whether this server can seal now as the operator requested; never in a task with random sampling."""
    return facts.close and facts.patient and facts.complete >= facts.min_cohort


def _between_rounds(facts: Facts) -> Decision:
    if facts.succeeded:
        return Succeeded()
    if facts.rollback_to is not None:
        return RollBack(facts.rollback_to)
    if facts.succeeding and not facts.paused:
        return Succeed()
    more = may_open(facts.next_kind, rounds=facts.rounds, trained=facts.trained, after=facts.last_kind)
    if not more or not facts.affordable:
        return Finished()
    return Paused() if facts.paused else Open(facts.next_number, facts.next_kind)


def _idle(facts: Facts, now: float) -> Decision:
    if facts.rollback_to is not None:
        return Abort("a rollback was requested and no device was taking part")
    if facts.paused:
        return Paused()
    if facts.succeeding:
        return Abort("the task is about to switch to its successor and no device was taking part")
    if facts.closing and now >= facts.upload_until + CLOSING_PATIENCE:
        return Abort("too few devices joined the last evaluation within a day")
    if facts.panel and now >= facts.upload_until + PANEL_PATIENCE:
        return Abort("too few panel devices joined in time")
    return Idle()


def all_here(facts: Facts, now: float) -> bool:
    """Return whether every session with a seat is complete here and no more can join, or the cohort is complete."""
    if facts.state is not RoundState.OPEN:
        return False
    return facts.complete >= facts.cohort or (not joinable(facts, now) and facts.complete >= facts.admitted)


def missing(facts: Facts, now: float) -> int:
    """Return how many must still become complete before `half_here`, `enough_here` or `all_here` can become true."""
    if _shut(facts):
        return min(facts.admitted, facts.cohort) - facts.complete
    seats = _seats(facts) if now < facts.join_until else facts.admitted
    least = facts.min_cohort if facts.patient else 0
    goals = [max(least, _share_of(share, seats, facts)) for share in (_HALF, facts.share)]
    return min([goal for goal in goals if goal > facts.complete] or [min(seats, facts.cohort)]) - facts.complete


def joinable(facts: Facts, now: float) -> bool:
    """Return whether devices may join the open round: in the join window, and after it while too few have joined."""
    too_few = facts.patient and facts.complete < facts.min_cohort
    room = facts.taken < _seats(facts) and facts.complete < facts.cohort
    return not _shut(facts) and room and (now < facts.join_until or too_few)


def _seats(facts: Facts) -> int:
    return facts.cohort if facts.seats is None else facts.seats


def _shut(facts: Facts) -> bool:
    """Return whether a drain keeps devices out; not with random sampling, because this would bias the sample."""
    return facts.draining and facts.patient
