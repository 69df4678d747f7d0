"""The sum of a round: over one list of sessions, complete, of the right size, and opened once."""

import numpy as np
import pytest
from tests.unit.party_rounds import ITEMS, ROUND, UPDATES, ask, make_parties, make_session, total
from tests.unit.sessions import (
    make_round,
    make_task,
)

from secemb_lab.party_round import PartyRound
from secemb_shared.errors import (
    SecEmbError,
    SessionError,
    SpecError,
)
from secemb_shared.messages import RoundSpec


def filled(count: int, round_: RoundSpec = ROUND) -> tuple[list[PartyRound], list[bytes]]:
    """Return both parties with complete sessions; the n-th adds n times the same rows."""
    parties = make_parties(round_)
    sessions = [make_session(round_, seed=seed) for seed in range(count)]
    for factor, session in enumerate(sessions, start=1):
        ask(session, parties)
        for party, data in zip(parties, session.write(ITEMS, factor * UPDATES), strict=True):
            party.update(session.session_id, data)
    return parties, [session.session_id for session in sessions]


def test_a_sum_over_fewer_than_the_minimum_stays_closed() -> None:
    parties, names = filled(2)
    for few in ([], names[:1]):
        with pytest.raises(SpecError):
            parties[0].share(few)


def test_a_session_named_twice_does_not_make_a_cohort() -> None:
    parties, names = filled(2)
    with pytest.raises(SessionError):
        parties[0].share([names[0], names[0]])


def test_a_sum_over_more_than_the_cohort_stays_closed() -> None:
    """The overflow budget was checked for the cohort and no more."""
    parties, names = filled(4, make_round(make_task(cohort=3)))
    with pytest.raises(SpecError):
        parties[0].share(sorted(names))


def test_the_list_of_sessions_has_one_order() -> None:
    parties, names = filled(3)
    with pytest.raises(SessionError):
        parties[0].share(sorted(names, reverse=True))


def test_a_sum_needs_every_update_of_its_list() -> None:
    parties, names = filled(2)
    late = make_session(seed=9)
    ask(late, parties)
    with pytest.raises(SessionError):
        parties[0].share(sorted([*names, late.session_id]))
    assert parties[0].complete() == sorted(names)


def test_a_sum_is_over_exactly_the_sessions_of_its_list() -> None:
    parties, names = filled(4)
    assert parties[0].complete() == parties[1].complete() == sorted(names)
    assert total(parties, [names[1], names[3]])[ITEMS].tolist() == (6 * UPDATES).tolist()


def test_a_round_opens_for_one_list_and_ever_after_for_the_same() -> None:
    """The difference of two sums would be a sum over fewer sessions than the minimum."""
    parties, names = filled(4)
    first = total(parties, names[:3])
    for other in (names, names[1:], names[:2]):
        with pytest.raises(SessionError):
            parties[0].share(sorted(other))
    assert np.array_equal(total(parties, names[:3]), first)


def test_a_refused_list_does_not_open_the_round() -> None:
    parties, names = filled(3)
    for wrong in (names[:1], sorted([*names, bytes(16)])):
        with pytest.raises(SecEmbError):
            parties[0].share(wrong)
    assert total(parties, names)[ITEMS].tolist() == (6 * UPDATES).tolist()


def test_a_list_that_changes_after_its_sum_does_not_open_the_round_again() -> None:
    parties, names = filled(3)
    opened = sorted(names[:2])
    parties[0].share(opened)
    opened[:] = sorted(names)
    with pytest.raises(SessionError):
        parties[0].share(opened)
