"""What server 0 remembers about each token: what its sessions came to, and what was refused; and suspensions."""

import hashlib
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.devices.phone import SEALED, a_phone, contributed
from tests.devices.scripted import KEYS, UPDATE, Device, a_device, flipped
from tests.simulation.pair import RELAYED, Pair, a_pair
from tests.simulation.tampering import LONG, each, flip
from tests.simulation.test_refusals import assert_problem

import secemb_party.http.session_routes
from secemb_party.errors import PeerUnavailableError
from secemb_party.ledger import Conduct, RoundState
from secemb_party.operators import Order
from secemb_sdk.round.contribute import NotNow
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.codec import ENVELOPE_BYTES

pytestmark = pytest.mark.asyncio
ORDER = Order("tests", "so the tests will")


async def conduct(pair: Pair, token: str) -> Conduct:
    found = await pair.parties[0].ledger.token(hashlib.sha256(token.encode()).digest())
    assert found is not None
    return found.conduct


async def enrolled(pair: Pair, *tokens: str) -> list[Device]:
    for token in tokens:
        await pair.enrol(token)
    await pair.step()
    return [a_device(pair, number, token=token) for number, token in enumerate(tokens)]


async def test_sessions_are_counted_for_the_token_that_joined() -> None:
    async with a_pair(open_enrolment=False) as pair:
        for one in await enrolled(pair, "a", "b", "c"):
            await (one.take_part() if one.token != "c" else one.join())
        await pair.finish()
        for token, want in (("a", (1, 1, 0)), ("b", (1, 1, 0)), ("c", (1, 0, 1))):
            found = await conduct(pair, token)
            assert (found.joined, found.completed, found.silent) == want
            assert (found.refused, found.rejected, found.problem) == (0, 0, None)


REFUSED: dict[str, tuple[str, Callable[[bytes], bytes], dict[str, str], str]] = {
    "a message of another round": (KEYS, lambda body: flipped(body, 10), {}, "message-binding"),
    "a message that is too short": (KEYS, lambda body: body[:-1], {}, "message-length"),
    "other keys": (KEYS, lambda body: flipped(body, ENVELOPE_BYTES), {}, "session-conflict"),
    "an upload with a wrong MAC": (UPDATE, lambda body: body, {"secemb-proof": "00" * 16}, "proof-refused"),
    "an upload with half a MAC": (UPDATE, lambda body: body, {"secemb-proof": "00"}, "proof-refused"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_message_is_counted_for_the_device_that_sent_it_and_for_no_other(name: str) -> None:
    what, change, headers, slug = REFUSED[name]
    async with a_pair(open_enrolment=False) as pair:
        bad, good = await enrolled(pair, "bad", "good")
        await good.join()
        await bad.join()
        for role in (0, 1):
            await bad.put(role, KEYS)
        pair.clock.now += 3
        for _ in range(2):
            answer = await bad.put(0, what, change(bad.body(0, what)), **headers)
            assert answer is not None
            assert answer.json()["type"].endswith(slug)
        found = await conduct(pair, "bad")
        assert (found.refused, found.problem, found.problem_at) == (2, slug, pair.clock.now)
        assert (await conduct(pair, "good")).refused == 0


async def test_without_the_count_a_device_cannot_be_told_from_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secemb_party.http.session_routes, "_blame", lambda _error: None)
    with pytest.raises(AssertionError):
        await test_a_refused_message_is_counted_for_the_device_that_sent_it_and_for_no_other("other keys")


async def test_what_a_strange_ticket_or_a_bad_line_brings_about_is_nobodys() -> None:
    async with a_pair(open_enrolment=False) as pair:
        victim, _ = await enrolled(pair, "victim", "other")
        await victim.join()
        forged = urlsafe_b64encode(bytes(72)).decode()
        answer = await victim.put(0, KEYS, b"x", **{"secemb-ticket": forged})
        assert_problem(answer, 403, "ticket-refused")
        answer = await victim.put(0, KEYS, b"x", **{"content-type": "text/plain"})
        assert_problem(answer, 415, "media-type")
        assert (await conduct(pair, "victim")).refused == 0


@pytest.mark.parametrize("who", ["a device", "server 0"])
async def test_operators_tell_a_device_that_raises_relay_errors_from_a_server_that_does(who: str) -> None:
    """The same alert fires. Under one hash it is the device, under all of them the server."""
    changes: dict[str, Any] = LONG | {"min_cohort": 2, "cohort": 4}
    async with a_pair(open_enrolment=False, **changes) as pair:
        tokens = [f"token {number}" for number in range(3)]
        for token in tokens:
            await pair.enrol(token)
        await pair.step()
        phones = [a_phone(pair, number, token=token) for number, token in enumerate(tokens)]
        if who == "server 0":
            pair.line.tamper = each(lambda frame: flip(frame, -1))
            for phone in phones:
                assert isinstance(await phone.contribute(), NotNow)
        else:
            for phone in phones[1:]:
                await contributed(phone)
            await raise_relay_error(pair, tokens[0])
        noted = [(await conduct(pair, token)).problem for token in tokens]
        assert pair.parties[1].metrics.refusals().get("relay-altered", 0) >= 1
        assert noted == (["relay-altered"] * 3 if who == "server 0" else ["relay-altered", None, None])


async def raise_relay_error(pair: Pair, token: str) -> None:
    """Let a hostile device send keys through server 0 whose public part is not the one in its box."""
    bad = a_phone(pair, 7, token=token)
    sent: list[httpx.Request] = []
    carry = pair.send

    async def alter(role: int, request: httpx.Request) -> httpx.Response | None:
        if request.url.path.endswith("/relayed-keys"):
            body = await request.aread()
            headers = {**request.headers, "content-length": str(len(body))}
            request = httpx.Request(
                request.method, request.url, content=flipped(body, len(body) - 1 - SEALED), headers=headers
            )
            sent.append(request)
        return await carry(role, request)

    pair.send = alter  # type: ignore[method-assign]
    assert isinstance(await bad.contribute(), NotNow)
    pair.send = carry  # type: ignore[method-assign]
    assert sent


async def test_a_rejected_session_is_noted_for_its_token() -> None:
    async with a_pair(open_enrolment=False) as pair:
        first, second = await enrolled(pair, "first", "second")
        for one in (first, second):
            await one.take_part()
        ledger = pair.parties[0].ledger
        await ledger.note_rejections([first.name], "keys-rejected", pair.clock.now)
        await ledger.note_rejections([first.name, bytes(16)], "norm-rejected", pair.clock.now + 1)
        found = await conduct(pair, "first")
        assert (found.rejected, found.problem, found.problem_at) == (2, "norm-rejected", pair.clock.now + 1)
        assert (await conduct(pair, "second")).rejected == 0


async def test_a_session_that_the_servers_reject_is_counted_for_its_token_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its public part differs between the servers. The line fails after the comparison, which is then repeated."""
    async with a_pair(open_enrolment=False) as pair:
        devices = await enrolled(pair, "a", "b", "bad")
        devices[2].twist = UPDATE
        for one in devices:
            await one.take_part()
        pair.clock.now += pair.task.join_seconds
        while (record := await pair.parties[0].ledger.last_round(pair.task.task_id)) is not None:
            if record.state is RoundState.SEALING:
                break
            await pair.step()
        for _ in range(3):
            with monkeypatch.context() as patch:
                patch.setattr(pair.server0.leader._completion._peer, "commit", _lost)
                with pytest.raises(PeerUnavailableError):
                    await pair.server0.leader.step()
        await pair.finish()
        assert [(await conduct(pair, token)).rejected for token in ("a", "b", "bad")] == [0, 0, 1]
        assert [(await conduct(pair, token)).completed for token in ("a", "b", "bad")] == [1, 1, 0]


async def _lost(*_: object) -> bytes:
    raise PeerUnavailableError("the line fails")


async def test_a_suspended_device_neither_joins_nor_reads_until_it_is_resumed() -> None:
    async with a_pair(open_enrolment=False) as pair:
        device, other = await enrolled(pair, "phone", "other")
        ledger = pair.parties[0].ledger
        assert await ledger.suspend_devices(["name of phone"], ORDER, pair.clock.now) == 1
        assert await ledger.suspend_devices(["name of phone", "nobody"], ORDER, pair.clock.now) == 0
        refused = await device.join()
        assert_problem(refused, 403, "token-suspended")
        assert refused is not None
        assert refused.headers["retry-after"] == "3600"
        path = f"https://server0/v1/tasks/{pair.task.task_id.hex()}/read"
        headers = {"authorization": "Bearer phone"}
        reads = httpx.Request("POST", path, json={"session": device.name.hex()}, headers=headers)
        assert_problem(await pair.send(0, reads), 403, "token-suspended")
        outcome = await a_phone(pair, 5, token="phone").contribute()
        assert isinstance(outcome, NotNow)
        assert (outcome.seconds >= 3600, "has suspended this device" in outcome.reason) == (True, True)
        await other.take_part()
        assert await ledger.resume_devices(["name of phone"], ORDER, pair.clock.now) == 1
        await device.take_part()
        await pair.finish()
        assert [(one.what, one.reason) for one in await ledger.actions()][:2] == [
            ("token resume", ORDER.reason),
            ("token suspend", ORDER.reason),
        ]


async def test_a_session_that_has_joined_stays_when_its_device_is_suspended() -> None:
    async with a_pair(open_enrolment=False) as pair:
        device, other = await enrolled(pair, "phone", "other")
        await device.join()
        await pair.parties[0].ledger.suspend_devices(["name of phone"], ORDER, pair.clock.now)
        for what in (KEYS, UPDATE):
            for role in (0, 1):
                answer = await device.put(role, what)
                assert answer is not None
                assert answer.status_code == 200
        await other.take_part()
        await pair.finish()
        assert (await conduct(pair, "phone")).completed == 1


# Reads.


async def ask_to_read(pair: Pair, token: str, number: int) -> httpx.Response:
    path = f"https://server0/v1/tasks/{pair.task.task_id.hex()}/read"
    session = hashlib.sha256(f"{token} {number}".encode()).hexdigest()[:32]
    headers = {"authorization": f"Bearer {token}"}
    answer = await pair.send(0, httpx.Request("POST", path, json={"session": session}, headers=headers))
    assert answer is not None
    return answer


async def test_a_token_reads_at_a_rate_and_others_read_all_the_same() -> None:
    async with a_pair(open_enrolment=False) as pair:
        await enrolled(pair, "greedy", "modest")
        statuses = [(await ask_to_read(pair, "greedy", number)).status_code for number in range(70)]
        assert statuses == [200] * 60 + [429] * 10
        assert (await ask_to_read(pair, "modest", 0)).status_code == 200
        refused = await ask_to_read(pair, "greedy", 99)
        assert refused.headers["retry-after"] == "1"
        pair.clock.now += 1
        assert (await ask_to_read(pair, "greedy", 100)).status_code == 200


@pytest.mark.parametrize("role", [0, 1])
async def test_a_read_ticket_is_good_for_a_few_answers(role: int) -> None:
    async with a_pair() as pair:
        await pair.step()
        device = a_device(pair, 0)
        path = f"https://server0/v1/tasks/{pair.task.task_id.hex()}/read"
        given = await pair.send(0, httpx.Request("POST", path, json={"session": device.name.hex()}))
        assert given is not None
        device.begin(given.json()["round"].encode())
        round_ = RoundSpec.decode(given.json()["round"].encode(), pair.task).digest.hex()
        headers = {"content-type": "application/octet-stream", "secemb-ticket": given.json()["ticket"]}
        found = []
        for _ in range(10):
            url = f"https://server{role}/v1/rounds/{round_}/sessions/{device.name.hex()}/rows"
            request = httpx.Request("POST", url, content=device.body(role, KEYS), headers=headers)
            answer = await pair.send(role, request)
            assert answer is not None
            found.append(answer.status_code)
        assert found == [200] * 8 + [403] * 2


async def test_relayed_devices_are_counted_too() -> None:
    async with a_pair(open_enrolment=False, **RELAYED) as pair:
        for token in ("a", "b"):
            await pair.enrol(token)
        await pair.step()
        for number, token in enumerate(("a", "b")):
            await contributed(a_phone(pair, number, token=token))
        await pair.finish()
        assert [(await conduct(pair, token)).completed for token in ("a", "b")] == [1, 1]
