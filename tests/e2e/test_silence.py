"""Nothing that two servers say about a round, in logs, metrics, problems or to operators, contains a secret of it."""

import asyncio
import base64
import json
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from tests.devices.over_http import Device, RelayedDevice, check_published, gather
from tests.e2e.servers import Servers, set_up, wait_for

from secemb_party.ui.render import PAGES
from secemb_server1.relay_keys import KEYS_FILE
from secemb_shared.labels import Purpose
from secemb_shared.messages import Kind
from secemb_shared.messages.codec import ENVELOPE_BYTES
from secemb_shared.messages.relay_key import KEY_ID_BYTES
from secemb_shared.messages.relayed import box_bytes, step_of

pytestmark = [pytest.mark.timeout(120), pytest.mark.asyncio]

SECRET_WORD = re.compile(r"(?<!-)[A-Za-z0-9_/+=-]{20,}(?!-)")  # of a line in a file: a token, a hash, base64
WINDOW = 8  # bytes: so much of a message by chance is one in 2^64


@pytest.fixture(params=["direct", "relayed"])
def servers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    made = set_up(tmp_path, relayed=request.param == "relayed")
    for server in made.pair:
        server.variables["SECEMB_LOGS__LEVEL"] = "debug"
    try:
        made.start()
        yield made
    finally:
        made.end()


async def test_a_whole_round_leaves_no_secret_in_anything_that_can_be_read(servers: Servers) -> None:
    devices = await gather(servers, kind=RelayedDevice if servers.task.relays else Device)
    said = [await provoke(servers, device) for device in devices]
    for device in devices:
        await device.send_update()
    said += [await provoke(servers, device) for device in devices]
    number = devices[0].session.round.number
    wait_for("the round ends", lambda: {server.state(number) for server in servers.pair} == {"published"})
    check_published(servers, devices)
    said += [await overhear(servers)]
    for server in servers.pair:
        assert server.stop() == 0
        said.append(server.log.read_text())
    text = "\n".join(said)
    assert "session-conflict" in text
    assert "ticket-refused" in text
    assert "proof-refused" in text
    assert '"event": "request"' in text
    assert not servers.task.relays or {"relay-box", "relay-key-outdated"} <= problems_in(text)
    for name, secret in secret_words(servers, devices):
        assert secret not in text, f"{name} can be read"
    hidden = hidden_windows(servers, devices)
    assert not windows_of(text) & hidden, "bytes of a message can be read"
    leak = base64.b64encode(devices[0].session.keys[0][ENVELOPE_BYTES + 5 : ENVELOPE_BYTES + 35]).decode()
    assert windows_of(f"{text} {leak}") & hidden, "this test would not notice"
    assert "\\x" not in text, "bytes were printed"
    for device in devices:
        await device.close()


async def provoke(servers: Servers, device: Device) -> str:
    """Send what is refused, in every way that quotes something, and return the answers with their headers."""
    found = [await provoke_relay(device)] if isinstance(device, RelayedDevice) else []
    assert device.updates is not None
    for role, client in enumerate(device.clients):
        base = f"/v1/rounds/{device.session.round.digest.hex()}/sessions/{device.session_id.hex()}"
        message = device.session.keys[role]
        headers = {"content-type": "application/octet-stream", "secemb-ticket": device.ticket}
        for path, body, more in (
            (f"{base}/keys", message[:-1] + bytes([message[-1] ^ 1]), {}),  # other bytes for a used session
            (f"{base}/keys", device.session.keys[1 - role], {}),  # the other server's message
            (f"{base}/update", message, {"secemb-proof": "00" * 16}),  # of another kind
            (f"{base}/update", device.updates[role], {"secemb-proof": "00" * 16}),  # of somebody else
            (f"{base}/keys", message, {"secemb-ticket": device.ticket[:-8] + "AAAAAAA="}),
            (f"{base}/keys", message, {"content-type": "text/plain"}),
            (f"{base}/{device.ticket}", message, {}),
        ):
            answer = await client.put(path, content=body, headers=headers | more)
            assert answer.status_code >= 400
            found.append(f"{answer.headers} {answer.text}")
    task = servers.task.task_id.hex()
    wish = {"session": device.session_id.hex(), "token": servers.tokens[device.number]}
    answer = await device.clients[0].post(f"/v1/tasks/{task}/join", json=wish, headers={"authorization": "Bearer x"})
    found.append(f"{answer.headers} {answer.text}")
    return "\n".join(found)


async def provoke_relay(device: RelayedDevice) -> str:
    """Send through server 0 what server 1, or both, refuse."""
    found = []
    base = f"/v1/rounds/{device.session.round.digest.hex()}/sessions/{device.session_id.hex()}"
    for name, kind in (("relayed-keys", Kind.RELAYED_KEYS), ("relayed-update", Kind.RELAYED_UPLOAD)):
        message, headers = device.relayed(kind), device.headers(0, name)
        start = len(message) - box_bytes(step_of(device.session.round, kind))
        for at in (len(message) - 1, start + KEY_ID_BYTES, start, start - 1, ENVELOPE_BYTES):
            body = message[:at] + bytes([message[at] ^ 1]) + message[at + 1 :]
            found.append(await device.clients[0].put(f"{base}/{name}", content=body, headers=headers))
    return "\n".join(f"{answer.headers} {answer.text}" for answer in found)


def problems_in(text: str) -> set[str]:
    return set(re.findall(r"urn:secemb:problem:([a-z-]+)", text))


async def overhear(servers: Servers) -> str:
    """Return what anybody, and what an operator, can read."""
    found = []
    for server, token in zip(servers.pair, servers.operator_tokens, strict=True):
        headers = {"authorization": f"Bearer {token}"}
        task = f"{server.url}/v1/tasks/{servers.task.task_id.hex()}"
        # A page of a busy machine takes its time; what is measured is what it says.
        async with httpx.AsyncClient(base_url=server.operator_url, headers=headers, timeout=60) as client:
            operator = [f"/v1/operator/{name}" for name in ("overview", "rounds", "rounds/0", "models", "refusals")]
            for path in (f"{server.metrics_url}/metrics", "/readyz", "/healthz", task, *operator):
                answer = await client.get(path)
                assert answer.status_code == 200, path
                found.append(answer.text)
            found.append(await listen(client))
            await client.post("/ui/login", data={"token": token})
            for _, address in (*PAGES, ("", "/ui/rounds/0"), ("", "/ui/live"), ("", "/ui/capacity/now")):
                answer = await client.get(address)
                assert answer.status_code == 200, address
                found.append(answer.text)
    return "\n".join(found)


async def listen(client: httpx.AsyncClient) -> str:
    """Return what the stream of events says within a moment; it does not end by itself."""
    heard = []
    with suppress(TimeoutError, httpx.ReadTimeout):
        async with asyncio.timeout(2), client.stream("GET", "/v1/operator/events") as answer:
            assert answer.status_code == 200
            async for text in answer.aiter_text():
                heard.append(text)
    return "".join(heard)


def secret_words(servers: Servers, devices: list[Device]) -> Iterator[tuple[str, str]]:
    for token in (*servers.tokens, *servers.operator_tokens):
        yield "a token", token
    for device in devices:
        yield "a session id", device.session_id.hex()
        yield "a session id", base64.b64encode(device.session_id).decode().rstrip("=")
        yield "a ticket", device.ticket.rstrip("=")
        yield "a ticket", base64.urlsafe_b64decode(device.ticket).hex()
        for secret in (*device.session.holds, *device.session.marks.macs):
            yield "a hold or a MAC", secret.hex()
        if isinstance(device, RelayedDevice):
            yield "a receipt", device.session.marks.receipt.hex()
    for folder in (server.folder for server in servers.pair):
        for path in [*(folder / "secrets").iterdir(), folder / "task" / "ticket.key"]:
            lines = path.read_text().splitlines() if path.exists() else []
            yield from ((path.name, word) for line in lines for word in SECRET_WORD.findall(line))
    yield from (("a relay key", private.hex()) for private in relay_keys(servers))


def relay_keys(servers: Servers) -> list[bytes]:
    """Return the private halves of the keys that devices seal to."""
    path = servers.pair[1].folder / "data" / KEYS_FILE
    found = [bytes.fromhex(key["private"]) for key in json.loads(path.read_text())] if servers.task.relays else []
    assert bool(found) == servers.task.relays
    return found


def hidden_bytes(servers: Servers, devices: list[Device]) -> Iterator[bytes]:
    """Yield every message without its envelope, which is public but for the session id, and every stored share."""
    for device in devices:
        assert device.updates is not None
        yield from (sent[ENVELOPE_BYTES:] for sent in (*device.session.keys, *device.updates, *device.answers))
        yield from (*device.session.holds, *device.session.marks.macs)
        if isinstance(device, RelayedDevice):
            yield from boxes(device)
    yield from relay_keys(servers)
    shares = [path for server in servers.pair for path in server.folder.rglob("*.share")]
    assert len(shares) == 2
    yield from (path.read_bytes() for path in shares)


def boxes(device: RelayedDevice) -> Iterator[bytes]:
    """Yield what only server 1 may know: the contents of the boxes, but for the digest of the round, and its mask."""
    round_ = device.session.round.digest
    for kind in (Kind.RELAYED_KEYS, Kind.RELAYED_UPLOAD):
        yield from device.content(kind).split(round_)
    yield device.session.round.label(device.session_id).key(Purpose.ANSWER_MASK, device.session.holds[1])


def hidden_windows(servers: Servers, devices: list[Device]) -> set[str]:
    """Return every stretch of them in hexadecimal, and in base64 at each of its three alignments."""
    found = set()
    for secret in hidden_bytes(servers, devices):
        found |= windows_of(secret.hex())
        for shift in range(3):
            found |= windows_of(base64.b64encode(secret[shift:]).decode())
            found |= windows_of(base64.urlsafe_b64encode(secret[shift:]).decode())
    return {window for window in found if len(set(window)) > 4}  # not the zeros of an empty slot


def windows_of(text: str) -> set[str]:
    words = re.findall(rf"[A-Za-z0-9+/_-]{{{2 * WINDOW},}}", text)
    return {word[at : at + 2 * WINDOW] for word in words for at in range(len(word) - 2 * WINDOW + 1)}
