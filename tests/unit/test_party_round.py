"""A party's round in memory: what counts, and when it is closed."""

import numpy as np
import pytest
from tests.unit.sessions import make_round, make_task

from secemb_lab.party_round import PartyRound, agree
from secemb_sdk.round.session import DeviceSession
from secemb_shared.errors import SessionError, SpecError
from secemb_shared.messages import RoundSpec

ROUND = make_round(make_task())
ITEMS = np.array([1, 4, 7], dtype=np.int64)


def uploaded(parties: list[PartyRound], round_: RoundSpec = ROUND) -> DeviceSession:
    """Return a session whose keys and update are at both parties."""
    session = DeviceSession(round_, ITEMS)
    for party, keys, update in zip(parties, session.keys, session.write_nothing(), strict=True):
        party.keys(session.session_id, keys)
        party.update(session.session_id, update)
    return session


def two_parties() -> list[PartyRound]:
    task = ROUND.task
    table = np.zeros((task.items, task.row_width), dtype=np.float32)
    return [PartyRound(ROUND, party, table) for party in (0, 1)]


def test_a_session_with_different_public_parts_does_not_count() -> None:
    parties = two_parties()
    good = [uploaded(parties).session_id for _ in range(2)]
    session, other = DeviceSession(ROUND, ITEMS), DeviceSession(ROUND, ITEMS)
    parties[0].keys(session.session_id, session.keys[0])
    changed = session.keys[1][:40] + other.keys[1][40:]
    parties[1].keys(session.session_id, changed)
    for party, update in zip(parties, session.write_nothing(), strict=True):
        party.update(session.session_id, update)
    assert session.session_id in parties[0].complete()
    assert session.session_id in parties[1].complete()
    assert agree(parties[0], parties[1]) == sorted(good)


def test_nothing_new_comes_in_after_the_sum_was_opened() -> None:
    parties = two_parties()
    sessions = [uploaded(parties) for _ in range(2)]
    waiting = DeviceSession(ROUND, ITEMS)
    parties[0].keys(waiting.session_id, waiting.keys[0])
    parties[0].share(agree(parties[0], parties[1]))
    late = DeviceSession(ROUND, ITEMS)
    with pytest.raises(SessionError):
        parties[0].keys(late.session_id, late.keys[0])
    with pytest.raises(SessionError):
        parties[0].update(waiting.session_id, waiting.write_nothing()[0])
    assert parties[0].keys(sessions[0].session_id, sessions[0].keys[0])  # a resend is still answered


def test_a_session_keeps_what_it_has_written() -> None:
    session = DeviceSession(ROUND, ITEMS)
    assert session.update is None
    assert session.write_nothing() == session.update


@pytest.mark.parametrize("changes", [{"items": 50.0}, {"name": 5}, {"cohort": True}, {"row_rate": 0.025}])
def test_a_member_of_the_wrong_type_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(SpecError):
        make_task(**changes)
