"""The code of a round knows one interface for every transport: a new route needs a class and one entry."""

from collections.abc import Callable

import pytest
from tests.devices.phone import Phone, a_phone, contributed, puts
from tests.simulation.pair import RELAYED, a_pair

from secemb_sdk.context import Context
from secemb_sdk.home.records import Ticket, Written
from secemb_sdk.round import contribute
from secemb_sdk.round.route import Answers, Joined
from secemb_sdk.round.route_direct import DirectRoute
from secemb_sdk.round.session import DeviceSession
from secemb_sdk.steps import Steps
from secemb_shared.messages import RoundSpec

pytestmark = pytest.mark.asyncio
CARRIER_PIGEON = "pigeon"


class PigeonRoute(DirectRoute):
    """A third transport: it keeps the pigeon's name with the ticket and wants it for every message."""

    transport = CARRIER_PIGEON
    used: list[tuple[str, bytes]]

    def join(self, seed: bytes) -> Steps[Joined]:
        joined = yield from super().join(seed)
        return Joined(round=joined.round, ticket=joined.ticket, route_state=b"Ada")

    def send_keys(self, session: DeviceSession, ticket: Ticket) -> Steps[Answers]:
        self.used.append(("keys", ticket.route_state))
        return (yield from super().send_keys(session, ticket))

    def send_update(self, round_: RoundSpec, written: Written) -> Steps[None]:
        self.used.append(("update", written.ticket.route_state))
        yield from super().send_update(round_, written)


@pytest.fixture
def pigeons(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """Add the third transport and let new sessions use it; return what was sent by it."""
    PigeonRoute.used = []
    monkeypatch.setattr(contribute, "ROUTES", (*contribute.ROUTES, PigeonRoute))
    monkeypatch.setattr(Context, "transport_for", lambda _self, _task: CARRIER_PIGEON)
    return PigeonRoute.used


async def test_a_new_transport_takes_a_device_through_a_round(pigeons: list[tuple[str, bytes]]) -> None:
    async with a_pair() as pair:
        await pair.step()
        receipt = await contributed(a_phone(pair, 0))
        assert pigeons == [("keys", b"Ada"), ("update", b"Ada")]
        assert receipt.transport == CARRIER_PIGEON


@pytest.mark.parametrize("lost", ["keys", "update"])
async def test_a_session_that_was_cut_short_goes_on_by_the_route_it_began_with(
    pigeons: list[tuple[str, bytes]], monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    async with a_pair(**RELAYED) as pair:
        await pair.step()
        phone = a_phone(pair, 0, seconds=3.0)
        phone.fault = _losing(phone, lost)
        await phone.contribute()
        monkeypatch.undo()  # a new session would be relayed
        monkeypatch.setattr(contribute, "ROUTES", (*contribute.ROUTES, PigeonRoute))
        phone.fault = lambda: "fine"
        assert (await contributed(phone)).transport == CARRIER_PIGEON
        assert pigeons[-1] == ("update", b"Ada")
        assert {what for _, what in puts(phone)} == {"keys", "update"}
        phone.seen.check()


def _losing(phone: Phone, lost: str) -> Callable[[], str]:
    return lambda: "lost" if phone.sent_at[-1][0] == lost else "fine"
