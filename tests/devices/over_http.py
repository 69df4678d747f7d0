"""Devices that talk to real servers: they keep trying, and resend exactly what they have sent before."""

import asyncio
import hashlib
import secrets
import time
from base64 import urlsafe_b64decode
from collections.abc import Sequence

import httpx
import numpy as np
import numpy.typing as npt
from tests.devices.scripted import with_more
from tests.e2e.servers import Servers

from secemb_lab.loadtest.fleet import headers_of, path_of
from secemb_sdk.round.session import DeviceSession
from secemb_sdk.trust import make_context
from secemb_shared.holds import hold_of, upload_mac
from secemb_shared.messages import Kind, RoundSpec
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, encode_relayed

PATIENCE = 40.0  # seconds until a device gives up, and the test fails
WAIT = 0.05


class Device:
    """One device in one round. It adds a power of two to one row, so that sums can be read off."""

    def __init__(self, servers: Servers, number: int, *, patience: float = PATIENCE) -> None:
        self._servers, self.number = servers, number
        self.item = number * 7 % servers.task.items
        self.update_rows = np.array([[2.0**number, -1.0, 0.0]])
        self.update_dense = np.array([1.0, 2.0**number])
        self.session_id = secrets.token_bytes(16)
        self.ticket = ""
        self.relay = b""  # the announcement of server 1's key, where the task is relayed
        self.receipts: list[str] = []
        self.answers: list[bytes] = []
        self.updates: tuple[bytes, bytes] | None = None
        self._session: DeviceSession | None = None
        self._end = time.monotonic() + patience
        urls = [server.url for server in servers.pair]
        self.clients = [httpx.AsyncClient(base_url=url, timeout=10.0, verify=make_context(url)) for url in urls]

    @property
    def session(self) -> DeviceSession:
        assert self._session is not None
        return self._session

    async def close(self) -> None:
        for client in self.clients:
            await client.aclose()

    async def join(self) -> int:
        """Join the open round, waiting for one if there is none, and return its number."""
        path, wish = f"/v1/tasks/{self._servers.task.task_id.hex()}/join", {"session": self.session_id.hex()}
        headers = {"authorization": f"Bearer {self._servers.tokens[self.number]}"}
        answer = await self._insist(0, "POST", path, json=wish, headers=headers)
        spec = RoundSpec.decode(answer.json()["round"].encode(), self._servers.task)
        self.ticket = answer.json()["ticket"]
        self.relay = urlsafe_b64decode(answer.json()["relay"] or "")
        self._session = self._draw_session(spec)
        return spec.number

    def _draw_session(self, spec: RoundSpec) -> DeviceSession:
        first = iter([self.session_id])
        return DeviceSession(
            spec, np.array([self.item]), random_bytes=lambda count: next(first, None) or secrets.token_bytes(count)
        )

    async def send_keys(self) -> None:
        self.answers = [await self.put(role, "keys", self.session.keys[role]) for role in (0, 1)]
        items, rows = self.session.read((self.answers[0], self.answers[1]))
        model = self._servers.model(0, self.session.round.model_version)
        assert np.array_equal(rows, model.rows[items])
        self.updates = self.session.write(items, self.update_rows, self.update_dense)

    async def send_update(self, roles: Sequence[int] = (0, 1)) -> None:
        assert self.updates is not None
        for role in roles:
            receipt = await self.put(role, "update", self.updates[role])
            assert hashlib.sha256(self.updates[role]).hexdigest() in receipt.decode()
            self.receipts.append(receipt.decode())

    async def put(self, role: int, what: str, body: bytes) -> bytes:
        path = path_of(self.session.round, self.session_id, what)
        return (await self._insist(role, "PUT", path, content=body, headers=self.headers(role, what))).content

    def headers(self, role: int, what: str) -> dict[str, str]:
        return headers_of(self.ticket, b"" if what.endswith("keys") else self.session.marks.macs[role])

    async def _insist(self, role: int, method: str, path: str, **request: object) -> httpx.Response:
        """Repeat a request until it is answered with 200; a refusal for good ends the test."""
        while True:
            try:
                answer = await self.clients[role].request(method, path, **request)  # type: ignore[arg-type]
            except httpx.TransportError:
                answer = httpx.Response(503)
            if answer.status_code == 200:
                return answer
            assert answer.status_code in {202, 429, 503}, answer.text
            assert time.monotonic() < self._end, f"device {self.number} gave up: {method} {what_of(path)}"
            await asyncio.sleep(WAIT)


class RelayedDevice(Device):
    """One relayed device in one round."""

    def content(self, kind: Kind) -> bytes:
        """Return what is in a message's box: server 0 must not read it."""
        if kind is Kind.RELAYED_KEYS:
            return box_content(self.session.round, Kind.KEYS, self.session.keys[1])
        assert self.updates is not None
        return box_content(self.session.round, Kind.UPDATE, self.updates[1], mac=self.session.marks.macs[1])

    def relayed(self, kind: Kind) -> bytes:
        """Return a message with its box, which is encrypted again each time."""
        own = self.session.keys[0] if kind is Kind.RELAYED_KEYS else (self.updates or (b"",))[0]
        round_ = self.session.round
        key = RelayKey.read(round_.task, self.relay)
        return encode_relayed(round_, self.session_id, kind, own, self.content(kind), key)

    async def send_keys(self) -> None:
        self.answers = [await self.put(0, "relayed-keys", self.relayed(Kind.RELAYED_KEYS))]
        items, rows = self.session.read_relayed(self.answers[0])
        model = self._servers.model(0, self.session.round.model_version)
        assert np.array_equal(rows, model.rows[items])
        self.updates = self.session.write(items, self.update_rows, self.update_dense)

    async def send_update(self, roles: Sequence[int] = (0, 1)) -> None:
        assert tuple(roles) == (0, 1), "one message is for both servers"
        receipt = await self.put(0, "relayed-update", self.relayed(Kind.RELAYED_UPLOAD))
        assert self.session.marks.receipt.hex() in receipt.decode()
        self.receipts.append(receipt.decode())


class TwoFacedDevice(Device):
    """One that sends server 1 other keys than server 0: both take them, and do not agree on the session."""

    async def send_keys(self) -> None:
        self._faces = (self.session, self._draw_session(self.session.round))
        self.answers = [await self.put(role, "keys", face.keys[role]) for role, face in enumerate(self._faces)]
        self.updates = (self._faces[0].write_nothing()[0], self._faces[1].write_nothing()[1])

    def headers(self, role: int, what: str) -> dict[str, str]:
        return headers_of(self.ticket, b"" if what == "keys" else self._faces[role].marks.macs[role])


class SpoilingDevice(Device):
    """One whose update adds half of the ring somewhere, for both servers alike: no sum with it is possible."""

    async def send_keys(self) -> None:
        await super().send_keys()
        assert self.updates is not None
        self.updates = (with_more(self.updates[0]), with_more(self.updates[1]))

    def headers(self, role: int, what: str) -> dict[str, str]:
        if what == "keys" or self.updates is None:
            return super().headers(role, what)
        hold, digest = hold_of(self.session.keys[role]), hashlib.sha256(self.updates[role]).digest()
        return headers_of(self.ticket, upload_mac(self.session.round.label(self.session_id), hold, digest))


def what_of(path: str) -> str:
    return path.rsplit("/", 1)[-1]


async def gather(servers: Servers, count: int = 4, *, kind: type[Device] = Device) -> list[Device]:
    """Let devices join one round and read their rows."""
    devices = [kind(servers, number) for number in range(count)]
    numbers = [await device.join() for device in devices]
    assert len(set(numbers)) == 1, numbers
    for device in devices:
        await device.send_keys()
    return devices


def expected_step(devices: list[Device], rows: npt.NDArray[np.float32], dense: npt.NDArray[np.float32]) -> None:
    """Subtract in place what one step of SGD with rate 1 subtracts: the mean update. Powers of two keep it exact."""
    for device in devices:
        rows[device.item] -= (device.update_rows[0] / len(devices)).astype(np.float32)
        dense -= (device.update_dense / len(devices)).astype(np.float32)


def check_published(servers: Servers, devices: list[Device]) -> None:
    """Both servers published the same model, and it is exactly the one before plus everybody's update."""
    spec = devices[0].session.round
    old, new = servers.model(0, spec.model_version), [servers.model(role, spec.model_version + 1) for role in (0, 1)]
    assert new[0].digest == new[1].digest
    rows, dense = old.rows.copy(), old.dense.copy()
    expected_step(devices, rows, dense)
    assert np.array_equal(new[0].rows, rows)
    assert np.array_equal(new[0].dense, dense)
