"""Devices of the simulation: each adds a power of two that no other of its round adds, so that sums can be read off."""

import hashlib
from dataclasses import dataclass, field

import httpx
import numpy as np
import numpy.typing as npt
from tests.simulation.pair import Pair

from secemb_lab.loadtest.fleet import headers_of, path_of
from secemb_sdk.round.session import DeviceSession
from secemb_shared import secure_sum
from secemb_shared.holds import hold_of, upload_mac
from secemb_shared.labels import Purpose
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.codec import ENVELOPE_BYTES, SEED_BYTES, encode_sum_share
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

SHARED_ITEM = 0  # every device writes to this row, and to one of its own
KEYS, UPDATE = "keys", "update"
WORDS = "words"  # a twist: correction words that belong to no point function, the same for both servers
SUM_BYTES = 4  # of an element of the tasks here
Sent = tuple[int, str, bytes]  # to which server, which message, its bytes


@dataclass
class RandomStream:
    """The same random bytes in every run, and first of all the seed itself."""

    seed: bytes
    served: int = 0

    def __call__(self, count: int) -> bytes:
        self.served += 1
        if self.served == 1 and count == len(self.seed):
            return self.seed
        return hashlib.shake_256(self.seed + self.served.to_bytes(4, "big")).digest(count)


@dataclass(eq=False)
class Device:
    """One device in one round, and what it remembers of both servers' answers."""

    pair: Pair
    name: bytes  # its session
    token: str | None = None
    power: int = 0
    twist: str | None = None  # the message whose public part differs between the servers, or WORDS
    wild: bool = False  # its update adds far too much somewhere: no sum with it is possible
    ticket: str = ""
    upload_until: float = 0.0
    session: DeviceSession | None = None
    bodies: dict[str, tuple[bytes, bytes]] = field(default_factory=dict)
    sent: set[tuple[int, str]] = field(default_factory=set)
    answers: dict[tuple[int, str], bytes] = field(default_factory=dict)  # acknowledged, and with what

    def __repr__(self) -> str:
        return f"<Device {self.name.hex()[:6]}>"

    @property
    def spec(self) -> RoundSpec:
        """Return the round it takes part in."""
        assert self.session is not None
        return self.session.round

    @property
    def honest(self) -> bool:
        """Return whether it passes the servers' checks: a wild one does where devices prove nothing."""
        return self.twist is None and not (self.wild and self.pair.task.norm_bound)

    @property
    def acknowledged(self) -> bool:
        """Return whether both servers have said that everything is durable."""
        return all((role, what) in self.answers for role in (0, 1) for what in (KEYS, UPDATE))

    @property
    def offered(self) -> bool:
        """Return whether both servers may hold everything."""
        return all((role, what) in self.sent for role in (0, 1) for what in (KEYS, UPDATE))

    async def join(self) -> httpx.Response | None:
        """Ask server 0 for a ticket."""
        headers = {} if self.token is None else {"authorization": f"Bearer {self.token}"}
        path = f"https://server0/v1/tasks/{self.pair.task.task_id.hex()}/join"
        request = httpx.Request("POST", path, json={"session": self.name.hex()}, headers=headers)
        answer = await self.pair.send(0, request)
        if answer is not None and answer.status_code == 200:
            self.ticket, self.upload_until = answer.json()["ticket"], answer.json()["upload_until"]
            self.begin(answer.json()["round"].encode())
        return answer

    def begin(self, round_: bytes) -> None:
        """Begin its session, once."""
        if self.session is None:
            spec = RoundSpec.decode(round_, self.pair.task)
            self.session = DeviceSession(spec, self.items(), random_bytes=RandomStream(self.name))

    def items(self) -> npt.NDArray[np.int64]:
        """Return the items of this device."""
        return np.array([SHARED_ITEM, 1 + self.power], dtype=np.int64)

    def update(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return what it adds to the whole table and to the dense part."""
        task = self.pair.task
        rows, dense = np.zeros((task.items, task.row_width)), np.zeros(task.dense_size)
        rows[self.items(), 0] = 2.0**self.power
        rows[self.items(), 1] = -1
        dense[0] = 2.0**self.power
        return rows, dense

    def body(self, role: int, what: str) -> bytes:
        """Return a message, made once."""
        assert self.session is not None
        if what not in self.bodies:
            if what == KEYS:
                pair = self.session.keys
            else:
                rows, dense = self.update()
                pair = self.session.write(self.items(), rows[self.items()], dense)
            if self.wild and what == UPDATE:
                # Two halves of the ring in one row would cancel; these amounts do not, whatever their signs.
                more = (1 << 27) + int.from_bytes(self.name[:4], "little") % (1 << 28)
                pair = (with_more(pair[0], more), with_more(pair[1], more))
            if self.twist == what:
                pair = (pair[0], flipped(pair[1], ENVELOPE_BYTES + SEED_BYTES))
            if self.twist == WORDS and what == KEYS:
                pair = (flipped(pair[0], ENVELOPE_BYTES + SEED_BYTES), flipped(pair[1], ENVELOPE_BYTES + SEED_BYTES))
            self.bodies[what] = pair
        return self.bodies[what][role]

    def write_sum(self, values: list[float]) -> None:
        """Let its upload be these numbers of a survey or an evaluation."""
        seed = hashlib.sha256(self.name).digest()[:SEED_BYTES]
        key = self.spec.label(self.name).key(Purpose.SUM_SHARE, seed)
        hidden = secure_sum.hide(key, SUM_RING.encode(np.array(values), bound=SUM_BOUND))
        self.bodies[UPDATE] = (
            encode_sum_share(self.spec, self.name, 0, hidden),
            encode_sum_share(self.spec, self.name, 1, seed),
        )

    def headers(self, role: int, what: str, data: bytes) -> dict[str, str]:
        """Return what is shown with a message, whatever its bytes: an upload's MAC is right, it comes from here."""
        if what == KEYS:
            return headers_of(self.ticket)
        hold, digest = hold_of(self.body(role, KEYS)), hashlib.sha256(data).digest()
        return headers_of(self.ticket, upload_mac(self.spec.label(self.name), hold, digest))

    async def put(self, role: int, what: str, body: bytes | None = None, **headers: str) -> httpx.Response | None:
        """Send a message, the right one unless another is given."""
        data = self.body(role, what) if body is None else body
        path = f"https://server{role}{path_of(self.spec, self.name, what)}"
        shown = self.headers(role, what, data) | headers
        answer = await self.pair.send(role, httpx.Request("PUT", path, content=data, headers=shown))
        if body is None:
            self.sent.add((role, what))
            if answer is not None and answer.status_code == 200:
                self._remember(role, what, answer.content)
        return answer

    def _remember(self, role: int, what: str, content: bytes) -> None:
        before = self.answers.setdefault((role, what), content)
        assert before == content, f"server {role} answered the same {what} in two ways"

    async def fall_silent(self) -> None:
        """Join, send keys to both servers, and no more: without keys its seat would lapse, and nobody miss it."""
        joined = await self.join()
        assert joined is not None
        assert joined.status_code == 200, joined.text
        for role in (0, 1):
            answer = await self.put(role, KEYS)
            assert answer is not None
            assert answer.status_code == 200, answer.text

    async def take_part(self) -> None:
        """Join and send everything to both servers."""
        joined = await self.join()
        assert joined is not None
        assert joined.status_code == 200, joined.text
        for what in (KEYS, UPDATE):
            for role in (0, 1):
                answer = await self.put(role, what)
                assert answer is not None
                assert answer.status_code == 200, answer.text


def with_more(update: bytes, more: int = 1 << 31) -> bytes:
    """Return an update whose first correction word is larger by `more`, or half of the ring."""
    at = ENVELOPE_BYTES, ENVELOPE_BYTES + SUM_BYTES
    word = int.from_bytes(update[slice(*at)], "little") + more
    return update[: at[0]] + (word % (1 << 32)).to_bytes(SUM_BYTES, "little") + update[at[1] :]


def flipped(data: bytes, at: int) -> bytes:
    """Return the bytes with one bit turned."""
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def a_device(pair: Pair, number: int, **fields: object) -> Device:
    """Return device number so-and-so, which adds 2 to the power of that."""
    name = hashlib.sha256(f"device {number}".encode()).digest()[:16]
    return Device(pair, **({"name": name, "power": number} | fields))  # type: ignore[arg-type]
