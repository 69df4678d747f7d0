"""When a round opens, seals and ends: the same facts and the same time give the same decision."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from secemb_party.ledger import RoundState
from secemb_server0.conductor import (
    STRAGGLER_SECONDS,
    Abort,
    Advance,
    Decision,
    Facts,
    Finished,
    Idle,
    Open,
    RollBack,
    Wait,
    all_here,
    decide,
    enough_here,
    half_here,
    joinable,
    missing,
)
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

JOIN_UNTIL, UPLOAD_UNTIL = 10.0, 30.0
SEAL = Advance(RoundState.OPEN)


def facts(admitted: int = 0, complete: int = 0, **changes: object) -> Facts:
    open_round = Facts(
        state=RoundState.OPEN,
        next_number=1,
        rounds=5,
        cohort=4,
        min_cohort=2,
        join_until=JOIN_UNTIL,
        upload_until=UPLOAD_UNTIL,
        taken=admitted,
        admitted=admitted,
        complete=complete,
    )
    return replace(open_round, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("admitted", "complete", "now", "decision"),
    [
        (0, 0, 0.0, Wait(JOIN_UNTIL)),
        (2, 2, 9.9, Wait(JOIN_UNTIL)),  # others may still join
        (3, 1, 10.0, Wait(UPLOAD_UNTIL)),  # two are on their way
        (4, 3, 5.0, Wait(JOIN_UNTIL)),
        (4, 4, 5.0, SEAL),  # everybody who fits is here
        (2, 2, 10.0, SEAL),
        (3, 2, 29.9, Wait(UPLOAD_UNTIL)),
        (3, 2, 30.0, SEAL),  # one never came back
        (3, 2, 1e9, SEAL),
        (1, 1, 10.0, Wait(UPLOAD_UNTIL)),  # too few: others may still join
        (1, 1, 30.0, Idle()),  # nobody is on the way, and nothing is lost by waiting
        (1, 1, 1e9, Idle()),
        (4, 1, 30.0, Abort("too few sessions")),
        (4, 0, 29.0, Wait(UPLOAD_UNTIL)),
    ],
)
def test_an_open_round_waits_for_those_who_may_still_come(
    admitted: int, complete: int, now: float, decision: Decision
) -> None:
    assert decide(facts(admitted, complete), now) == decision


@pytest.mark.parametrize(
    ("there", "now", "decision"),
    [
        (0, 10.0, Wait(10.0 + STRAGGLER_SECONDS)),
        (2, 10.0, Wait(10.0 + STRAGGLER_SECONDS)),
        (2, 29.9, Wait(UPLOAD_UNTIL)),
        (2, 30.0, SEAL),  # the third never came to server 1
        (3, 10.0, SEAL),
        (None, 10.0, SEAL),
    ],
)
def test_sealing_waits_for_updates_that_are_still_on_their_way_to_server_1(
    there: int | None, now: float, decision: Decision
) -> None:
    assert decide(facts(3, 3, complete_there=there), now) == decision


@pytest.mark.parametrize("state", [RoundState.SEALING, RoundState.SEALED, RoundState.SHARED, RoundState.RECONSTRUCTED])
@pytest.mark.parametrize("now", [0.0, 1e9])
def test_a_round_that_is_no_longer_open_goes_on_at_any_time(state: RoundState, now: float) -> None:
    assert decide(facts(state=state), now) == Advance(state)


@pytest.mark.parametrize(("trained", "more"), [(0, True), (4, True), (5, False), (6, False)])
@pytest.mark.parametrize("number", [4, 5, 900])  # surveys, evaluations and aborted rounds have numbers too
def test_training_rounds_open_until_the_task_has_had_its_number_of_them(trained: int, number: int, more: bool) -> None:
    found = facts(state=None, next_number=number, trained=trained, last_kind=TRAIN)
    assert decide(found, 0.0) == (Open(number) if more else Finished())


@pytest.mark.parametrize("kind", [SURVEY, EVALUATE])
@pytest.mark.parametrize("last_kind", [None, TRAIN, SURVEY, EVALUATE])
def test_other_rounds_open_while_there_are_training_rounds_to_come_and_one_evaluation_after_the_last(
    kind: str, last_kind: str | None
) -> None:
    found = facts(state=None, next_number=9, next_kind=kind, last_kind=last_kind)
    assert decide(replace(found, trained=4), 0.0) == Open(9, kind)
    closes = (kind, last_kind) == (EVALUATE, TRAIN)
    assert decide(replace(found, trained=5), 0.0) == (Open(9, EVALUATE) if closes else Finished())


@pytest.mark.parametrize("kind", [TRAIN, SURVEY, EVALUATE])
def test_a_round_that_cannot_be_afforded_does_not_open(kind: str) -> None:
    assert decide(facts(state=None, next_kind=kind, last_kind=TRAIN, affordable=False), 0.0) == Finished()


@st.composite
def any_facts(draw: st.DrawFn) -> Facts:
    cohort = draw(st.integers(2, 9))
    seats = draw(st.integers(cohort, 2 * cohort))
    admitted = draw(st.integers(0, seats))
    taken = draw(st.integers(0, admitted))
    join_until = draw(st.floats(0, 100))
    return Facts(
        seats=seats,
        lapses_at=draw(st.none() | st.floats(0, 300)),
        share=draw(st.floats(0.01, 1)),
        grace=draw(st.floats(0, 100)),
        enough_since=draw(st.none() | st.floats(0, 300)),
        state=draw(st.sampled_from([None, *RoundState])),
        next_number=draw(st.integers(0, 4)),
        next_kind=draw(st.sampled_from([TRAIN, SURVEY, EVALUATE])),
        last_kind=draw(st.sampled_from([None, TRAIN, SURVEY, EVALUATE])),
        rounds=draw(st.integers(1, 3)),
        trained=draw(st.integers(0, 4)),
        cohort=cohort,
        min_cohort=draw(st.integers(2, cohort)),
        join_until=join_until,
        upload_until=join_until + draw(st.floats(0, 100)),
        admitted=admitted,
        taken=taken,
        complete=draw(st.integers(0, min(taken, cohort))),
        started_at=draw(st.floats(0, join_until)),
        stragglers=draw(st.floats(0, 1e6)),
        half_since=draw(st.none() | st.floats(join_until, 300)) if join_until <= 300 else None,
    )


@given(any_facts(), st.floats(0, 300))
def test_no_round_opens_beside_another_and_none_seals_below_the_minimum(found: Facts, now: float) -> None:
    decision = decide(found, now)
    assert decision == decide(found, now)
    if isinstance(decision, Open | Finished):
        assert found.state is None
        closes = (found.next_kind, found.last_kind) == (EVALUATE, TRAIN)
        assert isinstance(decision, Finished) == (found.trained >= found.rounds and not closes)
    if isinstance(decision, Wait):
        assert found.state is RoundState.OPEN
        assert now < decision.until <= found.upload_until
    if decision == SEAL:
        assert found.state is RoundState.OPEN
        assert found.complete >= found.min_cohort
    if isinstance(decision, Abort):
        assert found.state is RoundState.OPEN
        assert found.complete < found.min_cohort


@given(any_facts(), st.floats(0, 300))
def test_who_waits_as_long_as_told_comes_to_an_end(found: Facts, now: float) -> None:
    """At most five times: for who may send keys, join, or upload, and for two kinds of late ones."""
    waits = 0  # an idle round is one that nothing is expected of
    while isinstance(decision := decide(found, now), Wait):
        now = decision.until
        waits += 1
    assert waits <= 5


@given(any_facts(), st.floats(0, 300), st.data())
def test_nothing_is_missed_by_not_looking_before_as_many_have_come_as_are_missing(
    found: Facts, now: float, data: st.DataObject
) -> None:
    found = replace(found, state=RoundState.OPEN)
    lacking = missing(found, now)
    if lacking <= 0:
        assert all_here(found, now)
        return
    assert not all_here(found, now)
    admitted = data.draw(st.integers(found.admitted, found.seats or 0)) if now < found.join_until else found.admitted
    more = data.draw(st.integers(0, min(lacking - 1, admitted - found.complete)))
    later = replace(found, admitted=admitted, complete=found.complete + more)
    assert not all_here(later, now)
    if admitted == found.admitted:  # who takes the last seat wakes the leader too
        assert not enough_here(later, now) or enough_here(found, now)
        assert not half_here(later, now) or half_here(found, now)


@given(any_facts(), st.floats(0, 300), st.floats(0, 300))
def test_what_is_over_stays_over(found: Facts, now: float, later: float) -> None:
    found = replace(found, complete_there=None)
    if not isinstance(decide(found, now), Wait) and now >= found.join_until:
        assert decide(found, now + later) == decide(found, now)


@pytest.mark.parametrize("trained", [1, 5])  # the task goes on, or has had all its rounds
def test_a_rollback_comes_before_the_next_round_and_after_the_open_one(trained: int) -> None:
    assert decide(facts(state=None, trained=trained, rollback_to=0), 0.0) == RollBack(0)
    assert decide(facts(4, 4, rollback_to=0), 5.0) == SEAL
    assert decide(facts(1, rollback_to=0), 0.0) == Wait(JOIN_UNTIL)


@pytest.mark.parametrize("now", [0.0, 20.0, 1e9])
def test_a_round_that_nobody_has_joined_waits_without_a_deadline_and_gives_way_to_a_rollback(now: float) -> None:
    waiting = facts(started=False, join_until=0.0, upload_until=0.0)
    assert decide(waiting, now) == Idle()
    assert joinable(waiting, now)
    assert isinstance(decide(replace(waiting, rollback_to=0), now), Abort)
    # With sessions that are complete but too few, it is the same.
    assert isinstance(decide(facts(1, 1, rollback_to=0), UPLOAD_UNTIL), Abort)


@given(any_facts(), st.floats(0, 300))
def test_devices_may_join_in_the_window_and_later_only_while_there_are_too_few(found: Facts, now: float) -> None:
    found = replace(found, state=RoundState.OPEN)
    may = joinable(found, now)
    assert not (may and found.taken == found.seats)
    assert not (may and found.complete == found.cohort)
    if found.taken < (found.seats or 0) and found.complete < found.cohort:
        assert may == (now < found.join_until or found.complete < found.min_cohort)
    if may and isinstance(decision := decide(found, now), Advance):
        assert now >= found.upload_until, decision  # no round seals while a device could still make it larger


@given(any_facts(), st.floats(0, 300))
def test_a_round_is_aborted_only_if_a_session_in_it_was_lost(found: Facts, now: float) -> None:
    if isinstance(decide(found, now), Abort):
        assert found.complete < found.admitted
        assert now >= found.upload_until


@pytest.mark.parametrize("complete", [0, 1])
def test_a_round_waits_for_nobody_where_devices_toss_a_coin_for_each(complete: int) -> None:
    found = facts(complete, complete, patient=False)
    assert joinable(found, JOIN_UNTIL - 1)
    assert not joinable(found, JOIN_UNTIL)
    assert decide(found, JOIN_UNTIL) == Abort("too few sessions")
    assert decide(replace(found, patient=True), UPLOAD_UNTIL) == Idle()  # where they do not, others may still come


# Seats, and a share of them.

SHARED = facts(4, 3, cohort=4, share=0.75, grace=5.0)


@pytest.mark.parametrize(
    ("since", "now", "decision"),
    [
        (None, 10.0, Wait(UPLOAD_UNTIL)),  # the leader has not noticed yet
        (10.0, 10.0, Wait(15.0)),
        (10.0, 14.9, Wait(15.0)),
        (10.0, 15.0, SEAL),  # the fourth says nothing
        (28.0, 29.0, Wait(UPLOAD_UNTIL)),  # the deadline comes before the end of the grace
    ],
)
def test_with_a_share_complete_a_round_waits_for_the_others_as_long_as_the_grace(
    since: float | None, now: float, decision: Decision
) -> None:
    assert decide(replace(SHARED, enough_since=since), now) == decision


@pytest.mark.parametrize(
    ("changes", "enough"),
    [
        ({}, True),
        ({"complete": 2}, False),  # of four seats, three are needed
        ({"complete": 2, "admitted": 2}, True),  # two seats have lapsed
        ({"join_until": 20.0, "taken": 3}, False),  # another may still take the fourth
        ({"join_until": 20.0}, True),  # nobody can: all seats are taken
        ({"min_cohort": 4}, False),  # a share is never less than the minimum
        ({"draining": True}, False),  # an operator must not decide who is left out
        ({"state": RoundState.SEALING}, False),
        ({"seats": 8, "taken": 8, "admitted": 8}, True),  # more seats than the cohort: it takes a share of the cohort
    ],
)
def test_a_share_is_of_the_seats_that_are_taken_and_counts_when_no_more_can_join(
    changes: dict[str, object], enough: bool
) -> None:
    assert enough_here(replace(SHARED, **changes), 10.0) is enough  # type: ignore[arg-type]


def test_server_1_must_hold_the_share_too() -> None:
    found = replace(SHARED, enough_since=10.0)
    assert decide(replace(found, complete_there=2), 16.0) == Wait(16.0 + STRAGGLER_SECONDS)
    assert decide(replace(found, complete_there=3), 16.0) == SEAL


def test_a_session_that_is_complete_on_one_server_only_costs_the_grace() -> None:
    """Everybody is complete here, and one of them has never sent anything to server 1."""
    found = replace(SHARED, complete=4, complete_there=3)
    assert decide(replace(found, enough_since=10.0), 12.0) == Wait(12.0 + STRAGGLER_SECONDS)
    assert decide(replace(found, enough_since=10.0), 15.0) == SEAL


def test_a_full_cohort_seals_at_once_whoever_else_has_a_seat() -> None:
    assert decide(facts(6, 4, seats=8), 5.0) == SEAL
    assert decide(facts(6, 3, seats=8), 5.0) == Wait(JOIN_UNTIL)


def test_a_round_looks_again_when_a_seat_lapses() -> None:
    assert decide(facts(3, 1, lapses_at=4.0), 1.0) == Wait(4.0)
    assert decide(facts(3, 1, lapses_at=4.0), 4.0) == Wait(JOIN_UNTIL)
    assert decide(facts(1, 1, lapses_at=None), UPLOAD_UNTIL) == Idle()  # the others had seats, and they have lapsed


def test_who_has_joined_without_keys_keeps_nobody_out_and_is_waited_for_until_it_lapses() -> None:
    flooded = facts(4, 2, taken=2, lapses_at=12.0)
    assert joinable(flooded, 5.0)
    assert not joinable(replace(flooded, taken=4), 5.0)
    assert decide(flooded, 11.0) == Wait(12.0)
    assert decide(replace(flooded, admitted=2, lapses_at=None), 12.0) == SEAL


# Half of the seats, where more than a share says nothing.

HALF = facts(8, 4, cohort=8, share=0.9, grace=3.0, started_at=2.0, stragglers=2.0, upload_until=60.0)


@pytest.mark.parametrize(
    ("changes", "since", "now", "decision"),
    [
        ({}, None, 12.0, Wait(60.0)),  # the leader has not noticed yet
        ({}, 12.0, 12.0, Wait(32.0)),  # half took ten seconds, the others get twenty
        ({}, 12.0, 31.9, Wait(32.0)),
        ({}, 12.0, 32.0, SEAL),
        ({"started_at": 11.5}, 12.0, 14.0, Wait(15.0)),  # at least the grace
        ({"stragglers": 1e6}, 12.0, 32.0, Wait(60.0)),  # the rule is off: the deadline decides
        ({"complete": 3}, 12.0, 32.0, Wait(60.0)),
        ({"min_cohort": 5}, 12.0, 32.0, Wait(60.0)),  # half is never less than the minimum
    ],
)
def test_with_half_complete_a_round_waits_for_the_others_a_multiple_of_what_that_took(
    changes: dict[str, object], since: float | None, now: float, decision: Decision
) -> None:
    assert decide(replace(HALF, half_since=since, **changes), now) == decision  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "half"),
    [
        ({}, True),
        ({"complete": 3}, False),
        ({"join_until": 20.0, "taken": 7}, False),  # another may still join
        ({"draining": True}, False),
        ({"min_cohort": 5}, False),
    ],
)
def test_half_counts_when_no_more_can_join(changes: dict[str, object], half: bool) -> None:
    assert half_here(replace(HALF, **changes), 12.0) is half  # type: ignore[arg-type]


def test_server_1_must_hold_the_half_too() -> None:
    found = replace(HALF, half_since=12.0)
    assert decide(replace(found, complete_there=3), 33.0) == Wait(33.0 + STRAGGLER_SECONDS)
    assert decide(replace(found, complete_there=4), 33.0) == SEAL
