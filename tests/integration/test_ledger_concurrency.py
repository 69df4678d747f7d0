"""Many callers at once, in one process and in several, never get more than one after the other would."""

import asyncio
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.integration.databases import NOW, TASK, WINDOW, keys_body, name, new_round, open_round, upload

from secemb_party.errors import LedgerConflictError
from secemb_party.ledger import Admission, Ledger, RoundState, Stored

T = TypeVar("T")
S = name("session", 16)
REPOSITORY = Path(__file__).parents[2]

pytestmark = pytest.mark.asyncio


async def together(calls: list[Coroutine[Any, Any, T]]) -> list[T]:
    """Run calls at once, in a random order that a failure can be repeated with."""
    random.Random(len(calls)).shuffle(calls)
    return await asyncio.gather(*calls)


async def outcome(call: Coroutine[Any, Any, T]) -> T | str:
    try:
        return await call
    except LedgerConflictError as error:
        return type(error).__name__


async def test_a_round_never_admits_more_than_its_limit(ledger: Ledger, rival: Ledger) -> None:
    round_id = await open_round(ledger)
    calls = [
        side.admit(round_id, name(f"{at}", 16), device=name(f"device {at}"), limit=7, waiting=7, now=NOW, window=WINDOW)
        for at, side in enumerate([ledger, rival] * 20)
    ]
    assert Counter(await together(calls)) == {Admission.ADMITTED: 7, Admission.FULL: 33}
    assert (await ledger.counts(round_id)).admitted == 7


async def test_a_device_that_races_itself_gets_one_session(ledger: Ledger, rival: Ledger) -> None:
    round_id = await open_round(ledger)
    calls = [
        side.admit(round_id, name(f"{at}", 16), device=name("device"), limit=7, waiting=7, now=NOW, window=WINDOW)
        for at, side in enumerate([ledger, rival] * 6)
    ]
    assert Counter(await together(calls)) == {Admission.ADMITTED: 1, Admission.DEVICE_TAKEN: 11}


async def test_a_device_that_repeats_itself_at_once_is_admitted_once(ledger: Ledger, rival: Ledger) -> None:
    round_id = await open_round(ledger)
    calls = [
        side.admit(round_id, S, device=name("device"), limit=7, waiting=7, now=NOW, window=WINDOW)
        for side in [ledger, rival] * 6
    ]
    assert Counter(await together(calls)) == {Admission.ADMITTED: 1, Admission.ALREADY: 11}


async def test_keys_without_admission_never_make_more_sessions_than_the_limit(ledger: Ledger, rival: Ledger) -> None:
    round_id = await open_round(ledger)
    calls = [
        side.put_keys(upload(round_id, name(f"{at}", 16)), NOW, require_admission=False, limit=7)
        for at, side in enumerate([ledger, rival] * 15)
    ]
    assert Counter(await together(calls)) == {Stored.STORED: 7, Stored.FULL: 23}
    assert (await ledger.counts(round_id)).keys == 7


@pytest.mark.parametrize("admission", [True, False])
async def test_of_different_bodies_for_one_session_exactly_one_is_stored(
    ledger: Ledger, rival: Ledger, admission: bool
) -> None:
    round_id = await open_round(ledger)
    if admission:
        await ledger.admit(round_id, S, device=name("device"), limit=7, waiting=7, now=NOW, window=WINDOW)
    bodies = [b"body %d" % at for at in range(8)]
    for attempt in range(2):
        calls = [
            side.put_keys(upload(round_id, S, body), NOW, require_admission=admission, limit=7)
            if attempt == 0
            else side.put_update(upload(round_id, S, body), NOW)
            for body in bodies
            for side in (ledger, rival)
        ]
        # Each body comes twice: the one that is stored is once the same, the seven others are twice different.
        assert Counter(await together(calls)) == {Stored.STORED: 1, Stored.SAME: 1, Stored.DIFFERENT: 14}
    (found,) = [batch async for batch in ledger.read_bodies(round_id, [S], batch=32)]
    assert (
        await ledger.put_keys(upload(round_id, S, found[0].keys), NOW, require_admission=admission, limit=7)
    ) == "same"
    assert (await ledger.put_update(upload(round_id, S, found[0].update), NOW)) == "same"


async def test_a_session_that_races_into_two_rounds_is_in_one(ledger: Ledger, rival: Ledger) -> None:
    rounds = [await open_round(ledger, number) for number in (1, 2)]
    calls = [
        side.put_keys(upload(round_id, S), NOW, require_admission=False, limit=7)
        for round_id in rounds
        for side in (ledger, rival)
    ]
    assert Counter(await together(calls)) == {Stored.STORED: 1, Stored.SAME: 1, Stored.OTHER_ROUND: 2}
    assert sorted([(await ledger.counts(round_id)).keys for round_id in rounds]) == [0, 1]


async def test_of_two_steps_from_one_state_exactly_one_is_made(ledger: Ledger, rival: Ledger) -> None:
    for number in range(1, 6):
        round_id = await open_round(ledger, number)
        calls = [
            outcome(ledger.advance(round_id, RoundState.OPEN, RoundState.SEALING, NOW)),
            outcome(rival.advance(round_id, RoundState.OPEN, RoundState.ABORTED, NOW, reason="a race")),
        ]
        answers = await together(calls)
        assert answers.count("StateConflictError") == 1
        (winner,) = [answer for answer in answers if not isinstance(answer, str)]
        assert winner == await ledger.round(round_id)


async def test_of_two_lists_for_one_round_exactly_one_is_sealed(ledger: Ledger, rival: Ledger) -> None:
    round_id = await open_round(ledger)
    await ledger.advance(round_id, RoundState.OPEN, RoundState.SEALING, NOW)
    calls = [
        outcome(
            side.advance(
                round_id, RoundState.SEALING, RoundState.SEALED, NOW, sealed_sessions=[], list_digest=name(text)
            )
        )
        for side, text in ((ledger, "one"), (rival, "two"), (ledger, "two"), (rival, "one"))
    ]
    answers = await together(calls)
    assert answers.count("StateConflictError") == 2
    assert len({answer for answer in answers if not isinstance(answer, str)}) == 1


async def test_what_is_acknowledged_before_the_seal_is_in_it_and_nothing_comes_after(
    ledger: Ledger, rival: Ledger
) -> None:
    round_id = await open_round(ledger)
    names = [name(f"{at}", 16) for at in range(30)]
    for session_id in names:
        await ledger.put_keys(upload(round_id, session_id), NOW, require_admission=False, limit=100)

    async def seal() -> set[bytes]:
        await rival.advance(round_id, RoundState.OPEN, RoundState.SEALING, NOW)
        return {found.session_id for found in await rival.session_summaries(round_id) if found.complete}

    updates = [ledger.put_update(upload(round_id, session_id), NOW) for session_id in names]
    first, sealed, rest = await asyncio.gather(asyncio.gather(*updates[:15]), seal(), asyncio.gather(*updates[15:]))
    stored = {name for name, answer in zip(names, [*first, *rest], strict=True) if answer is Stored.STORED}
    assert set(first) | set(rest) <= {Stored.STORED, Stored.CLOSED}
    assert sealed == stored


async def test_of_two_rounds_with_one_number_exactly_one_is_created(ledger: Ledger, rival: Ledger) -> None:
    await ledger.add_task(TASK, b"s", NOW)
    calls = [
        outcome(side.create_round(new_round(1, round_id=name(text), spec=text.encode())))
        for side, text in ((ledger, "one"), (rival, "two"))
    ]
    assert (await together(calls)).count("LedgerConflictError") == 1
    assert len(await ledger.rounds(TASK)) == 1


async def test_everyone_gets_the_answer_that_was_remembered_first(ledger: Ledger, rival: Ledger) -> None:
    calls = [side.remember("share", b"answer %d" % at, NOW) for at, side in enumerate([ledger, rival] * 8)]
    assert set(await together(calls)) == {await ledger.recall("share")}


async def test_a_reader_of_events_misses_none(ledger: Ledger, rival: Ledger) -> None:
    async def follow() -> list[int]:
        seen: list[int] = []
        while len(seen) < 60:
            seen += [event.event_id for event in await ledger.events(after_id=seen[-1] if seen else 0)]
        return seen

    async with asyncio.timeout(60):
        calls = [side.append_event("tick", {}, NOW) for side in [ledger, rival] * 30]
        seen, written = await asyncio.gather(follow(), asyncio.gather(*calls))
    assert seen == sorted(written)


async def test_an_empty_database_may_be_opened_by_many_at_once(place: str) -> None:
    ledgers = await asyncio.gather(*[Ledger.open(place, migrate=True) for _ in range(4)])
    for opened in ledgers:
        await opened.add_task(TASK, b"s", NOW)
        await opened.close()


async def test_who_opens_a_new_file_waits_for_another_that_is_making_it(tmp_path: Path) -> None:
    # SQLite itself does not wait here, whatever its time-out says.
    with closing(sqlite3.connect(tmp_path / "ledger.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(Ledger.open(f"sqlite:///{tmp_path}/ledger.db", migrate=True))
        await asyncio.sleep(0.3)
        assert not opening.done()
        other.execute("COMMIT")
    await (await opening).close()


async def test_a_caller_that_goes_away_leaves_a_whole_session_or_none(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    names = [name(f"{at}", 16) for at in range(40)]
    dice = random.Random(3)

    async def put(session_id: bytes) -> None:
        async with asyncio.timeout(dice.random() * 0.05):
            await ledger.put_keys(upload(round_id, session_id), NOW, require_admission=False, limit=100)

    answers = await asyncio.gather(*map(put, names), return_exceptions=True)
    assert all(answer is None or isinstance(answer, TimeoutError) for answer in answers)
    await ledger.append_event("after", {}, NOW)  # whatever was still under way is over: writers queue
    acknowledged = {name for name, answer in zip(names, answers, strict=True) if answer is None}
    held = {found.session_id for found in await ledger.session_summaries(round_id)}
    assert acknowledged <= held
    for session_id in held:
        assert await keys_body(ledger, round_id, session_id) == b"body"


async def test_a_call_that_fails_does_not_spoil_those_that_wait_with_it(ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    calls: list[Coroutine[Any, Any, object]] = [
        outcome(ledger.put_keys(upload(round_id, name(f"{at}", 16)), NOW, require_admission=False, limit=100))
        for at in range(10)
    ]
    calls.insert(5, outcome(ledger.advance(round_id, RoundState.SEALED, RoundState.SHARED, NOW)))
    answers = await asyncio.gather(*calls)
    assert answers == [*[Stored.STORED] * 5, "StateConflictError", *[Stored.STORED] * 5]
    assert (await ledger.counts(round_id)).keys == 10


CHILD = """
import asyncio, sys
from secemb_party.ledger import Ledger
from tests.integration.databases import NOW, WINDOW, name

async def main(url, round_id, who):
    async with await Ledger.open(url, migrate=False) as ledger:
        calls = [ledger.admit(round_id, name(f"{who} {at}", 16), device=name(f"{who} {at}"), limit=25,
                              waiting=25, now=NOW, window=WINDOW)
                 for at in range(40)]
        print((await asyncio.gather(*calls)).count("admitted"))

asyncio.run(main(sys.argv[1], bytes.fromhex(sys.argv[2]), sys.argv[3]))
"""


def admissions_of_child(url: str, round_id: bytes, who: str) -> int:
    command = [sys.executable, "-c", CHILD, url, round_id.hex(), who]
    return int(subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True).stdout)


async def test_processes_share_one_limit(home: str, ledger: Ledger) -> None:
    round_id = await open_round(ledger)
    children = [asyncio.to_thread(admissions_of_child, home, round_id, who) for who in ("first", "second")]
    assert sum(await asyncio.gather(*children)) == 25
    assert (await ledger.counts(round_id)).admitted == 25
