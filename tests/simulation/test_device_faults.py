"""Whatever happens to requests, to the app and to the servers: no path is used twice, no session counts twice, and the
device comes back. Devices with a fault planted in them are found out."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.devices.phone import FAULTS, FINE, Phone, Seen, a_phone, fine, never, until_contributed
from tests.simulation.invariants import Invariants
from tests.simulation.pair import RELAYED, Pair, a_pair

from secemb_sdk.home.receipts import Receipt
from secemb_sdk.home.records import Keyed, Stage, Written, encode_private
from secemb_sdk.home.vault import Vault
from secemb_sdk.round import contribute
from secemb_sdk.round.session import DeviceSession, SeededBytes
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.spec import EVALUATE, SURVEY
from secemb_shared.randomness import secure_bytes

SOAK = bool(os.environ.get("SOAK_TESTS"))
EXAMPLES = 2000 if SOAK else 10
PHONES = 2
MOMENTS = 25  # of a device's first round, at least
WAYS = DIRECT, RELAYING, MIXED = "direct", "relayed", "mixed"  # mixed: one device directly, the other relayed

# What happens, in order; when it is used up nothing goes wrong any more.
HISTORIES = st.fixed_dictionaries(
    {
        "turns": st.lists(st.sampled_from(["0", "0", "1", "lead", "wait", "crash 0", "crash 1"]), max_size=14),
        "faults": st.lists(st.sampled_from([FINE, *FAULTS]), max_size=40),
        "lives": st.lists(st.integers(0, 23), max_size=8),  # how many moments until the app dies again
    }
)
History = dict[str, list[Any]]


class Fate:
    """Decides what happens to each request, and at which moments the app dies."""

    def __init__(self, history: History) -> None:
        self._faults: Iterator[str] = iter(history["faults"])
        self._lives: Iterator[int] = iter(history["lives"])
        self._left = next(self._lives, None)

    def fault(self) -> str:
        return next(self._faults, FINE)

    def dies(self) -> bool:
        if self._left is None:
            return False
        if self._left:
            self._left -= 1
            return False
        self._left = next(self._lives, None)
        return True


@dataclass(frozen=True)
class TookPart:
    """One session, as the servers' invariants want to see it."""

    pair: Pair
    name: bytes
    digest: bytes
    seen: Seen
    items: tuple[int, int]
    honest: bool = True
    wild: bool = False

    @property
    def session(self) -> "TookPart":
        return self

    @property
    def spec(self) -> "TookPart":
        return self

    @property
    def offered(self) -> bool:
        return all((self.name.hex(), role, what) in self.seen.bodies for role in (0, 1) for what in ("keys", "update"))

    @property
    def acknowledged(self) -> bool:
        return self.seen.acknowledged[self.name.hex()] == {0, 1}

    def update(self) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        task, (mark, mood) = self.pair.task, self.seen.updates[self.name.hex()]
        rows, dense = np.zeros((task.items, task.row_width)), np.zeros(task.dense_size)
        rows[self.items, :] = mark, -mood
        dense[0] = mark
        return rows, dense


@dataclass
class Life:
    """A pair of servers and everything that devices have sent to it."""

    pair: Pair
    way: str
    seen: Seen = field(default_factory=Seen)
    devices: int = 0

    async def live_through(self, history: History) -> bool:
        """Let two new devices take part in a round; return whether an app was killed."""
        fate = Fate(history)
        phones = [await self.enrol(number) for number in range(PHONES)]
        if self.way == MIXED:
            phones[0].options = {"transport": DIRECT}
        for phone in phones:
            phone.fault, phone.dies = fate.fault, fate.dies
        await self.pair.step()
        for turn in history["turns"]:
            await take(turn, self.pair, phones)
            self.seen.check()
        for phone in phones:
            phone.fault, phone.dies = fine, never
        for outcome in await until_contributed(phones):
            assert outcome.trouble is None
        await self.pair.finish()
        check(phones, self.seen)
        return any(phone.deaths for phone in phones)

    async def enrol(self, number: int) -> Phone:
        self.devices += 1
        name = f"{self.devices}"
        return await enrol(
            self.pair, number, self.seen, token=f"token {name}", folder=self.pair.folder / f"home {name}"
        )


async def enrol(pair: Pair, number: int, seen: Seen, *, token: str | None = None, **fields: Any) -> Phone:
    token = token or f"token {number}"
    await pair.enrol(token)
    return a_phone(pair, number, seen=seen, token=token, **fields)


@asynccontextmanager
async def a_life(way: str, **options: Any) -> AsyncIterator[Life]:
    relayed = {} if way == DIRECT else RELAYED
    async with a_pair(open_enrolment=False, **relayed, **options) as pair:
        yield Life(pair, way)


async def take(turn: str, pair: Pair, phones: list[Phone]) -> None:
    match turn.split():
        case ["lead"]:
            await pair.step()
        case ["wait"]:
            pair.clock.now += 7
        case ["crash", role]:
            await pair.crash(int(role))
            await pair.step()
        case [number]:
            await phones[int(number)].contribute()


def check(phones: list[Phone], seen: Seen) -> None:
    """No path twice; a receipt for every session that sent something; the private part moved once for each that ended
    well."""
    seen.check()
    for phone in phones:
        context = phone.open()
        receipts, private = context.vault.receipts(), context.vault.private()
        assert context.vault.session() is None
        context.vault.close()
        complete = [one for one in receipts if one.complete]
        assert private is not None
        assert private.steps == len(complete), "the private part did not move once for each receipt"
        assert len({one.round for one in receipts}) == len(receipts), "a round left two receipts"


def devices_in(life: Life) -> list[Any]:
    return [
        TookPart(
            life.pair, bytes.fromhex(name), bytes.fromhex(next(iter(rounds))), life.seen, items_of(life.seen, name)
        )
        for name, rounds in life.seen.rounds.items()
    ]


def items_of(seen: Seen, name: str) -> tuple[int, int]:
    mark, _ = seen.updates.get(name, (1, 0))
    return 0, 1 + mark.bit_length() - 1


CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@pytest.mark.timeout(0 if SOAK else 900)
@pytest.mark.parametrize("way", WAYS)
def test_no_path_is_used_twice_and_the_device_comes_back(way: str) -> None:
    @settings(max_examples=EXAMPLES, suppress_health_check=CHECKS)
    @given(HISTORIES)
    def histories(history: History) -> None:
        asyncio.run(live_once(history, way))

    histories()


async def live_once(history: History, way: str) -> None:
    async with a_life(way) as life:
        await life.live_through(history)
        await Invariants(life.pair, devices_in(life)).check_end()


async def die_at_every_moment(way: str = DIRECT, *, first: int = 0) -> None:
    """Kill an app once at each moment of its first round, in order, until it lives through all of them.

    Each time two other devices are in another round of the same servers.
    """
    async with a_life(way) as life:
        servers = Invariants(life.pair)
        for moment in itertools.count(first):
            killed = await life.live_through(killed_at(moment))
            servers.devices = devices_in(life)
            await servers.check_end()
            if not killed:
                assert moment >= MOMENTS
                return


def killed_at(moment: int) -> History:
    return {"turns": ["0"], "faults": [], "lives": [moment]}


@pytest.mark.parametrize("way", [DIRECT, RELAYING])
def test_an_app_that_is_killed_at_any_moment_comes_back(way: str) -> None:
    asyncio.run(die_at_every_moment(way))


@pytest.mark.parametrize("way", [DIRECT, RELAYING])
@pytest.mark.parametrize("kind", [SURVEY, EVALUATE])
def test_an_app_that_is_killed_in_a_secure_sum_comes_back_and_counts_once(kind: str, way: str) -> None:
    asyncio.run(die_in_sums(kind, way))


async def die_in_sums(kind: str, way: str) -> None:
    """Kill an app at every other moment of its first round, each time of another device in another round."""
    async with a_life(way, choose_kind=lambda _: kind) as life:
        for moment in itertools.count(start=kind == EVALUATE, step=2):
            if not await live_through_a_sum(life, kind, killed_at(moment)):
                assert moment >= MOMENTS
                return


async def live_through_a_sum(life: Life, kind: str, history: History) -> bool:
    """Return whether an app was killed."""
    before = len(await results_in(life))
    phones = [await life.enrol(number) for number in range(PHONES)]
    phones[0].dies = Fate(history).dies
    for phone in phones:
        phone.options = {"hold_out": 0.999999}
    await life.pair.step()
    await phones[0].contribute()
    phones[0].dies = never
    await until_contributed(phones)
    await life.pair.finish()
    life.seen.check()
    results = await results_in(life)
    assert len(results) > before
    rounds = await life.pair.parties[0].ledger.rounds(life.pair.task.task_id, limit=1000)
    sessions = {one.number: len(one.sealed_sessions or ()) for one in rounds}
    for found in results:  # a session that counted twice, or a share without its other half, would show here
        if kind == SURVEY:
            assert found["mean_items"] == 2.0
        else:  # of its ratings, 2 and 4, a device holds out one; the model says 0
            assert found["predictions"] == sessions[found["round"]]
            assert round(found["mae"] * found["predictions"], 6) % 2 == 0
            assert 2.0 <= found["mae"] <= 4.0
    return bool(phones[0].deaths)


async def results_in(life: Life) -> list[Any]:
    events = await life.pair.parties[0].ledger.events(limit=1000)
    return [event.data for event in events if event.kind == "result"]


# Planted faults.

Patch = pytest.MonkeyPatch


def send_an_update_that_is_not_stored(patch: Patch) -> None:
    honest = Vault.keep_session

    def keep_session(self: Vault, stage: Stage, **rest: Any) -> None:
        if not isinstance(stage, Written):
            honest(self, stage, **rest)

    patch.setattr(Vault, "keep_session", keep_session)


def draw_a_new_session_under_the_old_id(patch: Patch) -> None:
    def build(round_: RoundSpec, keyed: Keyed) -> contribute.Opened:
        drawn = SeededBytes(keyed.seed)
        first = iter([drawn(16)])
        session = DeviceSession(
            round_, keyed.selection.items, random_bytes=lambda count: next(first, None) or secure_bytes(count)
        )
        return session, drawn

    patch.setattr(contribute, "_build", build)


def send_keys_that_are_not_stored(patch: Patch) -> None:
    """The wish, with its session id, survives; what was drawn for it is drawn anew."""
    honest = Vault.keep_session

    def keep_session(self: Vault, stage: Stage, **rest: Any) -> None:
        if not isinstance(stage, Keyed):
            honest(self, stage, **rest)

    class Fresh(SeededBytes):
        def __call__(self, count: int) -> bytes:
            return super().__call__(count) if count == 16 else secure_bytes(count)

    patch.setattr(Vault, "keep_session", keep_session)
    patch.setattr(contribute, "SeededBytes", Fresh)


def leave_a_receipt_at_every_end(patch: Patch) -> None:
    honest = Vault.end_session

    def end_session(self: Vault, receipt: Receipt, *, receipts: int, **rest: Any) -> None:
        honest(self, receipt, receipts=len(self.receipts()), **rest)

    patch.setattr(Vault, "end_session", end_session)


def end_before_the_private_part_is_kept(patch: Patch) -> None:
    honest = Vault.end_session

    def end_session(self: Vault, receipt: Receipt, *, private: Any = None, **rest: Any) -> None:
        honest(self, receipt, **rest)
        if private is not None:
            self._home.write("private", encode_private(private))

    patch.setattr(Vault, "end_session", end_session)


PLANTED: list[tuple[Callable[[Patch], None], str]] = [
    (send_an_update_that_is_not_stored, "different update of one session"),
    (draw_a_new_session_under_the_old_id, "different keys of one session"),
    (send_keys_that_are_not_stored, "different keys of one session"),
    (leave_a_receipt_at_every_end, "once for each receipt"),
    (end_before_the_private_part_is_kept, "once for each receipt"),
]


@pytest.mark.parametrize(("plant", "message"), PLANTED, ids=[one[0].__name__ for one in PLANTED])
def test_a_planted_fault_is_found_out(plant: Callable[[Patch], None], message: str, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=message):
        asyncio.run(die_at_every_moment(first=10))  # before its keys are sent none of them shows
