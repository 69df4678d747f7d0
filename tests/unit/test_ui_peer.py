"""What each server's page says about the other one: as much as it can know, and no more."""

import re
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from tests.devices.phone import DOUBLED, FINE, a_phone, contributed
from tests.devices.scripted import a_device
from tests.simulation.pair import RELAYED, a_pair
from tests.unit.operator_desk import Desk, a_desk, file_of_operators

from secemb_party.ledger import ModelVersion, RoundRecord, RoundState, What
from secemb_party.operators import Order
from secemb_party.ui.views import peer
from secemb_party.ui.views.peer import GRACE, agreed_at

MODEL = ModelVersion(task_id=bytes(32), version=3, digest=bytes(32), recorded_at=50.0, published_at=60.0)


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    async with a_desk() as found:
        yield found


async def newest(desk: Desk) -> RoundRecord:
    found = await desk.pair.parties[1].ledger.last_round(desk.pair.task.task_id)
    assert found is not None
    return found


async def read(desk: Desk, role: int, path: str) -> str:
    """Return the words of a page, with digests as they are written elsewhere."""
    async with desk.logged_in(role) as browser:
        text = (await browser.get(path)).text
    text = re.sub(r'<code class="digest">(.*?)</code>', lambda found: found[1].replace(" ", ""), text)
    return " ".join(re.sub(r"<[^>]+>", " ", text).split())


@pytest.mark.asyncio
async def test_server_1_knows_when_server_0_last_named_the_digest_of_its_model(desk: Desk) -> None:
    last = await newest(desk)
    reading = replace(last, model_version=3, opened_at=70.0)
    assert agreed_at(None, None) is None
    assert agreed_at(replace(MODEL, version=0), None) is None  # made here, and not compared
    assert agreed_at(MODEL, None) == 60.0  # handed over
    assert agreed_at(MODEL, reading) == 70.0
    assert agreed_at(MODEL, replace(reading, model_version=2)) == 60.0


@pytest.mark.asyncio
async def test_server_1_says_whether_it_hears_from_server_0(desk: Desk) -> None:
    text = await read(desk, 1, "/ui/peer")
    assert "Server 0 called now." in text
    assert "server 0 named the same digest" in text
    assert desk.pair.parties[1].models.load(1).digest.hex() in text
    assert "to seal a list of sessions 1" in text
    desk.pair.clock.now += GRACE - 1
    assert "A call was due by" not in await read(desk, 1, "/ui/peer")
    desk.pair.clock.now += 2
    text = await read(desk, 1, "/ui/peer")
    assert "Server 0 called 2 min 1 s ago. A call was due by" in text
    await desk.pair.step()  # opens the next round
    assert "Server 0 called now." in await read(desk, 1, "/ui/peer")
    for _ in range(5):  # however long the round waits for devices
        desk.pair.clock.now += GRACE - 1
        assert "A call was due by" not in await read(desk, 1, "/ui/peer")
        await desk.pair.exchange()


@pytest.mark.asyncio
async def test_server_1_does_not_call_a_server_0_overdue_that_was_paused_or_drained(desk: Desk) -> None:
    pair = desk.pair
    await pair.parties[0].control.tell(What.PAUSE, Order("admin", "a holiday"))
    for _ in range(5):
        await pair.step()
        await pair.exchange()
        pair.clock.now += GRACE - 1
        text = await read(desk, 1, "/ui/peer")
        assert "A call was due by" not in text
        assert "(pause): a holiday." in text
    pair.clock.now += 2
    assert "A call was due by" in await read(desk, 1, "/ui/peer"), "a paused server still calls"
    await pair.parties[0].control.lift(What.PAUSE, Order("admin"))
    await pair.parties[0].control.tell(What.DRAIN, Order("admin", "new disks"))
    await pair.exchange()
    pair.clock.now += 3600  # it was stopped
    text = await read(desk, 1, "/ui/peer")
    assert "A call was due by" not in text
    assert "(drain): new disks. It may be stopped during this time." in text


@pytest.mark.asyncio
async def test_server_1_that_was_never_called_says_so() -> None:
    async with a_pair(operators=file_of_operators()) as pair:
        text = await read(Desk(pair), 1, "/ui/peer")
        assert "Server 0 has not called since this process started." in text
        assert "not compared with server 0 yet" in text


@pytest.mark.asyncio
async def test_server_0_asks_and_compares(desk: Desk) -> None:
    text = await read(desk, 0, "/ui/peer")
    assert "Server 1 answered within" in text
    assert "Both servers publish the same model." in text
    assert text.count(desk.pair.parties[0].models.load(1).digest.hex()) == 2
    desk.pair.line.lose_requests = 1
    assert "Server 1 cannot be reached" in await read(desk, 0, "/ui/peer")


@pytest.mark.asyncio
async def test_a_round_has_the_digests_of_both_sides_as_far_as_a_server_has_them(desk: Desk) -> None:
    records = [await party.ledger.last_round(desk.pair.task.task_id) for party in desk.pair.parties.values()]
    texts = {role: await read(desk, role, "/ui/rounds/0") for role in (0, 1)}
    shares = {role: party_share(record) for role, record in zip(desk.pair.parties, records, strict=True)}
    assert shares[0] in texts[0]
    assert shares[1] in texts[0]
    assert shares[1] in texts[1]
    assert shares[0] not in texts[1]
    assert "Not known here: server 0 adds the two shares and never sends its own." in texts[1]
    for text in texts.values():
        assert text.count("the same on both servers") == 3  # the list, the model before and the model after


def party_share(record: RoundRecord | None) -> str:
    assert record is not None
    assert record.share_digest is not None
    return record.share_digest.hex()


@pytest.mark.asyncio
async def test_a_model_is_not_called_the_same_before_both_have_published_it(desk: Desk) -> None:
    pair = desk.pair
    await pair.step()
    for power in range(2):
        await a_device(pair, power, name=bytes([9, power]) * 8).take_part()
    while (await pair.parties[0].ledger.rounds(pair.task.task_id, limit=1))[0].state is not RoundState.RECONSTRUCTED:
        decision = await pair.step()
        pair.clock.now = max(pair.clock.now, getattr(decision, "until", 0.0))
    assert "not yet published on both servers" in await read(desk, 0, "/ui/rounds/1")


@pytest.mark.asyncio
async def test_everything_that_server_0_may_ask_has_words() -> None:
    async with a_pair(**RELAYED) as pair:
        paths = [path for path in pair.server1.peer.openapi()["paths"] if path.startswith("/peer/")]
    assert {peer.route_end(path) for path in paths} == set(peer._ASKED)


@pytest.mark.asyncio
async def test_both_pages_tell_direct_and_relayed_sessions_apart_and_count_a_resend_once() -> None:
    async with a_pair(operators=file_of_operators(), **RELAYED, cohort=3) as pair:
        await pair.step()
        for number, transport in enumerate(("relayed", "direct", "relayed")):
            twice = DOUBLED if number == 2 else FINE
            await contributed(a_phone(pair, number, options={"transport": transport}, fault=lambda twice=twice: twice))
        for role in (0, 1):
            text = await read(Desk(pair), role, "/ui")
            assert "Direct 1 sessions Relayed 2 sessions" in text


@pytest.mark.asyncio
async def test_a_task_that_is_not_relayed_says_so(desk: Desk) -> None:
    text = await read(desk, 1, "/ui")
    assert "Direct 2 sessions Relayed 0 sessions" in text
    assert "This task is not relayed" in text
