"""Several processes on one ledger: one of them conducts, and whatever a former conductor writes late is refused."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import text
from tests.integration.databases import NOW, TASK, Postgres, complete_session, name, new_round, open_round, upload

from secemb_party.errors import LedgerSettingError, LedgerTakenError, StateConflictError
from secemb_party.ledger import Admission, Ledger, RoundState, Stored, Window
from secemb_party.ledger.database import Turn

pytestmark = pytest.mark.asyncio
S = RoundState
_CONDUCT = """
import asyncio, sys
from secemb_party.errors import LedgerTakenError
from secemb_party.ledger import Ledger
async def conduct():
    ledger = await Ledger.open(sys.argv[1], migrate=False, patience=0.0, shared=True)
    assert await ledger.conduct()
    with ledger.conducting():
        await ledger.append_event("before", {}, 0.0)
        print("conducts", flush=True)
        sys.stdin.readline()
        try:
            await ledger.append_event("late", {}, 0.0)
            print("written", flush=True)
        except LedgerTakenError:
            print("refused", flush=True)
asyncio.run(conduct())
"""

# As PostgreSQL itself does with a connection that is idle for too long.
_END = text("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = :turn")


async def replica(url: str) -> Ledger:
    return await Ledger.open(url, migrate=False, patience=0.0, shared=True)


@pytest.fixture
def url(postgres: Postgres) -> str:
    return postgres.ledger_database()


@pytest_asyncio.fixture
async def pair(url: str) -> AsyncIterator[tuple[Ledger, Ledger]]:
    async with await replica(url) as first, await replica(url) as second:
        yield first, second


@contextmanager
def another_conductor(url: str) -> Iterator["subprocess.Popen[str]"]:
    """Let another process conduct, which can be paused."""
    command = [sys.executable, "-c", _CONDUCT, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "conducts\n"
            yield process
        finally:
            process.kill()


async def until_conducting(ledger: Ledger) -> None:
    async with asyncio.timeout(60):
        await ledger.claim()
        while not await ledger.conduct():
            await asyncio.sleep(0.1)
            await ledger.claim()


async def test_of_several_replicas_exactly_one_conducts(url: str, pair: tuple[Ledger, Ledger]) -> None:
    first, second = pair
    assert await first.conduct()
    assert await first.conduct()
    assert not await second.conduct()
    await first.close()
    await until_conducting(second)
    async with await replica(url) as third:
        assert not await third.conduct()


async def test_replicas_and_a_server_of_its_own_refuse_each_other(url: str) -> None:
    async with await replica(url), await replica(url):
        with pytest.raises(LedgerTakenError, match="shared = true"):
            await Ledger.open(url, migrate=False, patience=0.0)
    async with await Ledger.open(url, migrate=False, patience=30.0) as alone:
        assert await alone.conduct()
        with pytest.raises(LedgerTakenError):
            await replica(url)


async def test_sqlite_cannot_be_shared_and_its_only_process_conducts(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/ledger.db"
    async with await Ledger.open(url, migrate=True, patience=0.0) as ledger:
        assert await ledger.conduct()
        with ledger.conducting():
            await ledger.append_event("event", {}, NOW)
    with pytest.raises(LedgerSettingError, match="PostgreSQL"):
        await Ledger.open(url, migrate=False, patience=0.0, shared=True)


async def test_a_paused_conductor_wakes_up_late_and_is_refused(url: str) -> None:
    """It does not learn that its connection was ended until it writes, and another has taken over."""
    with another_conductor(url) as paused:
        async with await replica(url) as ledger:
            assert not await ledger.conduct()
            paused.send_signal(signal.SIGSTOP)
            await until_conducting(ledger)
            with ledger.conducting():
                await ledger.append_event("after", {}, NOW)
            paused.send_signal(signal.SIGCONT)
            answer, _ = await asyncio.to_thread(paused.communicate, "\n", timeout=60)
            assert answer == "refused\n"
            assert [event.kind for event in await ledger.events()] == ["before", "after"]


async def test_without_the_fence_a_late_write_would_be_accepted(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: the same two conductors, and nothing that checks the epoch."""
    async with await replica(url) as former, await replica(url) as current:
        await taken_over(former, current)
        with pytest.raises(LedgerTakenError), former.conducting():
            await former.append_event("late", {}, NOW)
        await taken_over(current, former)
        monkeypatch.setattr("secemb_party.ledger.ledger.check_epoch", lambda tx, epoch: None)
        with current.conducting():
            await current.append_event("late", {}, NOW)
        assert [event.kind for event in await former.events()] == ["late"]


async def taken_over(former: Ledger, current: Ledger) -> None:
    """Let `former` conduct, lose its connection without learning of it, and `current` conduct."""
    await until_conducting(former)
    await current._database.write(lambda tx: tx.execute(_END, {"turn": int(Turn.CONDUCTING)}))
    await until_conducting(current)


async def test_everything_that_a_conductor_decides_is_refused_late(pair: tuple[Ledger, Ledger]) -> None:
    former, current = pair
    round_id = await open_round(former)
    await complete_session(former, round_id, name("a", 16))
    await taken_over(former, current)
    writes: list[Callable[[], Awaitable[object]]] = [
        lambda: former.create_round(new_round(2)),
        lambda: former.postpone(round_id, Window(NOW + 1000, NOW + 2000)),
        lambda: former.advance(round_id, S.OPEN, S.SEALING, NOW),
        lambda: former.advance(round_id, S.OPEN, S.ABORTED, NOW, reason="late"),
        lambda: former.record_version(TASK, 1, name("model"), NOW),
        lambda: former.remember("answer", b"late", NOW),
        lambda: former.append_event("late", {}, NOW),
    ]
    epoch = former._epoch
    for write in writes:
        former._epoch = epoch  # it has not learned that another has taken over
        with pytest.raises(LedgerTakenError, match="another process"), former.conducting():
            await write()
    found = await current.round(round_id)
    assert found is not None
    assert (found.state, found.upload_until) == (S.OPEN, NOW + 600)
    # Devices are answered by every replica, whoever conducts.
    assert await former.put_keys(upload(round_id, name("b", 16)), NOW, require_admission=False, limit=9) == "stored"


async def test_two_replicas_race_on_every_transition(pair: tuple[Ledger, Ledger]) -> None:
    """Both write the same, at the same moment: both succeed, and it has happened once."""
    round_id, sessions = await open_round(pair[0]), [name(f"session {one}", 16) for one in range(3)]
    window = Window(NOW + 60, NOW + 600)
    admit: dict[str, Any] = {
        "device": name("device"),
        "limit": 5,
        "waiting": 9,
        "now": NOW,
        "window": window,
        "since": NOW - 5,
    }
    admitted = await asyncio.gather(*(one.admit(round_id, sessions[0], **admit) for one in pair))
    assert sorted(admitted) == sorted([Admission.ADMITTED, Admission.ALREADY])
    keys, other = upload(round_id, sessions[0], b"keys"), upload(round_id, sessions[0], b"other keys")
    stored = await asyncio.gather(
        pair[0].put_keys(keys, NOW, require_admission=True, limit=5),
        pair[1].put_keys(other, NOW, require_admission=True, limit=5),
    )
    assert sorted(stored) == sorted([Stored.STORED, Stored.DIFFERENT])
    updates = await asyncio.gather(*(one.put_update(upload(round_id, sessions[0], b"update"), NOW) for one in pair))
    assert sorted(updates) == sorted([Stored.STORED, Stored.SAME])
    for session in sessions[1:]:
        await complete_session(pair[0], round_id, session)
    steps: list[tuple[RoundState, RoundState, dict[str, Any]]] = [
        (S.OPEN, S.SEALING, {}),
        (S.SEALING, S.SEALED, {"sealed_sessions": sessions, "list_digest": name("list")}),
        (S.SEALED, S.SHARED, {"share_digest": name("share")}),
        (S.SHARED, S.RECONSTRUCTED, {"next_version": 1}),
        (S.RECONSTRUCTED, S.PUBLISHED, {}),
    ]
    for before, after, facts in steps:
        found = await asyncio.gather(*(one.advance(round_id, before, after, NOW, **facts) for one in pair))
        assert {one.state for one in found} == {after}
    assert len([one for one in await pair[0].events() if one.kind == "round"]) == len(steps)


@pytest.mark.parametrize(
    ("before", "one", "other"),
    [
        (S.OPEN, {"to": S.SEALING}, {"to": S.ABORTED, "reason": "too few sessions"}),
        (
            S.SEALING,
            {"to": S.SEALED, "sealed_sessions": [name("a", 16)], "list_digest": name("list")},
            {"to": S.ABORTED, "reason": "too few sessions"},
        ),
        (S.SEALED, {"to": S.SHARED, "share_digest": name("one")}, {"to": S.SHARED, "share_digest": name("other")}),
        (S.SHARED, {"to": S.RECONSTRUCTED, "next_version": 1}, {"to": S.DISCARDED, "reason": "impossible"}),
    ],
)
async def test_of_two_replicas_that_disagree_one_is_refused(
    pair: tuple[Ledger, Ledger], before: RoundState, one: dict[str, Any], other: dict[str, Any]
) -> None:
    round_id = await open_round(pair[0])
    await complete_session(pair[0], round_id, name("a", 16))
    path: list[tuple[RoundState, RoundState, dict[str, Any]]] = [
        (S.OPEN, S.SEALING, {}),
        (S.SEALING, S.SEALED, {"sealed_sessions": [name("a", 16)], "list_digest": name("list")}),
        (S.SEALED, S.SHARED, {"share_digest": name("share")}),
    ]
    for start, end, facts in path:
        if start is before:
            break
        await pair[0].advance(round_id, start, end, NOW, **facts)
    calls = (
        ledger.advance(round_id, before, now=NOW, **facts) for ledger, facts in zip(pair, (one, other), strict=True)
    )
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(one, StateConflictError) for one in found) == 1
    assert len([one for one in await pair[0].events() if one.kind == "round"]) == 1 + [
        S.OPEN,
        S.SEALING,
        S.SEALED,
        S.SHARED,
    ].index(before)
