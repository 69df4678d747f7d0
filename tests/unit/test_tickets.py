"""A ticket is good for one session of one round until its end, and only server 0 can make one."""

from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from secemb_party.errors import TicketError
from secemb_party.tickets import DOMAIN, TICKET_BYTES, Claim, TicketCheck, issue_ticket

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
ROUND, SESSION, END = b"r" * 32, b"s" * 16, 1000
TICKET = issue_ticket(KEY, ROUND, SESSION, END)
CLAIM = Claim(ROUND, SESSION, TICKET)


@pytest.mark.parametrize("now", [0.0, 999.5, 1000.0])
def test_a_ticket_is_good_up_to_its_end(now: float) -> None:
    TicketCheck(KEY.public_key()).check(CLAIM, now)


@pytest.mark.parametrize("now", [1000.001, 1e12])
def test_a_ticket_ends(now: float) -> None:
    with pytest.raises(TicketError, match="expired"):
        TicketCheck(KEY.public_key()).check(CLAIM, now)


@pytest.mark.parametrize(
    ("key", "round_id", "session_id"),
    [(OTHER, ROUND, SESSION), (KEY, b"R" * 32, SESSION), (KEY, ROUND, b"S" * 16)],
    ids=["key", "round", "session"],
)
def test_a_ticket_for_something_else_is_refused(key: Ed25519PrivateKey, round_id: bytes, session_id: bytes) -> None:
    with pytest.raises(TicketError, match="another round or session"):
        TicketCheck(key.public_key()).check(Claim(round_id, session_id, TICKET), 0.0)


@given(st.integers(0, TICKET_BYTES - 1), st.integers(1, 255))
def test_a_ticket_with_any_byte_changed_is_refused(at: int, change: int) -> None:
    data = bytearray(urlsafe_b64decode(TICKET))
    data[at] ^= change
    with pytest.raises(TicketError):
        TicketCheck(KEY.public_key()).check(Claim(ROUND, SESSION, urlsafe_b64encode(data).decode()), 0.0)


@given(st.text(max_size=140))
def test_what_is_no_ticket_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(TicketError) as caught:
        TicketCheck(KEY.public_key()).check(Claim(ROUND, SESSION, text), 0.0)
    assert len(text) < 8 or text not in str(caught.value)


@pytest.mark.parametrize(
    "spelled", [TICKET + "\n", TICKET + "=", "!" + TICKET, TICKET[:9] + " " + TICKET[9:], TICKET.replace("_", "/")]
)
def test_a_ticket_has_one_spelling(spelled: str) -> None:
    """The decoder of the standard library reads all of these as the same bytes."""
    if spelled == TICKET:
        pytest.skip("this ticket has no sign to replace")
    with pytest.raises(TicketError, match="unchanged"):
        TicketCheck(KEY.public_key()).check(Claim(ROUND, SESSION, spelled), 0.0)


def test_a_ticket_is_72_bytes_over_a_domain_of_its_own() -> None:
    data = urlsafe_b64decode(TICKET)
    assert len(data) == TICKET_BYTES == 72
    assert data[:8] == END.to_bytes(8, "little")
    KEY.public_key().verify(data[8:], DOMAIN + ROUND + SESSION + data[:8])


def test_the_same_session_gets_the_same_ticket_again() -> None:
    assert issue_ticket(KEY, ROUND, SESSION, END) == TICKET


def test_a_ticket_that_was_good_once_is_still_good_for_nothing_else_and_still_ends() -> None:
    tickets = TicketCheck(KEY.public_key())
    tickets.check(CLAIM, 0.0)
    tickets.check(CLAIM, 1000.0)
    for round_id, session_id in ((b"R" * 32, SESSION), (ROUND, b"S" * 16)):
        with pytest.raises(TicketError, match="another round or session"):
            tickets.check(Claim(round_id, session_id, TICKET), 0.0)
    with pytest.raises(TicketError, match="expired"):
        tickets.check(CLAIM, 1000.001)


def test_what_was_refused_is_refused_again() -> None:
    tickets = TicketCheck(OTHER.public_key())
    for _ in range(2):
        with pytest.raises(TicketError, match="another round or session"):
            tickets.check(CLAIM, 0.0)


def test_a_ticket_that_was_made_here_is_remembered_for_its_own_session_alone() -> None:
    tickets = TicketCheck(OTHER.public_key())  # so that only what is remembered can be good
    tickets.remember(CLAIM, 100)
    tickets.check(CLAIM, 100.0)
    for claim in (
        Claim(ROUND, bytes(16), TICKET),
        Claim(bytes(32), SESSION, TICKET),
        Claim(ROUND, SESSION, "x"),
    ):
        with pytest.raises(TicketError):
            tickets.check(claim, 100.0)
    with pytest.raises(TicketError):
        tickets.check(CLAIM, 100.5)


def test_a_claim_shows_nobody_its_ticket() -> None:
    assert TICKET not in repr(CLAIM)
