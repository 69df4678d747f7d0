"""What the ledger has acknowledged survives whatever ends its process or its database server."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Connection, text
from tests.integration.databases import NOW, Postgres, keys_body, name, open_round, upload

from secemb_party.errors import LedgerUnavailableError
from secemb_party.ledger import Ledger, Stored

REPOSITORY = Path(__file__).parents[2]
S, OTHER = name("session", 16), name("other session", 16)

pytestmark = pytest.mark.asyncio

HEAD = """
import asyncio, os, sys
from secemb_party.ledger import Ledger
from tests.integration.databases import NOW, name, open_round, upload

async def main(url):
    ledger = await Ledger.open(url, migrate=True)
    round_id = await open_round(ledger)
"""
PUT = "await ledger.put_keys(upload(round_id, {session}), NOW, require_admission=False, limit=10**6)"
ENDS_AFTER_THE_ACKNOWLEDGEMENT = f"""
    {PUT.format(session='name("session", 16)')}
    os._exit(7)
"""
UPLOADS_FOR_EVER = f"""
    for number in range(10**6):
        {PUT.format(session="number.to_bytes(16)")}
        print(number, flush=True)
"""
ENDS_INSIDE_A_TRANSACTION = """
    from secemb_party.ledger import sessions
    session_id = name("session", 16)
    store = await ledger.bodies.stage(round_id, session_id, "keys", bytes(32), b"body")
    def dies(tx):
        sessions.put_keys(tx, upload(round_id, session_id), store, NOW, require_admission=False, limit=9)
        os._exit(7)
    await ledger._database.write(dies)
"""


def child(body: str, url: str) -> subprocess.Popen[str]:
    code = f"{HEAD}{body}\nasyncio.run(main(sys.argv[1]))"
    return subprocess.Popen([sys.executable, "-c", code, url], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


async def exit_code(process: subprocess.Popen[str]) -> int:
    await asyncio.to_thread(process.communicate)
    return process.returncode


async def round_of(ledger: Ledger) -> bytes:
    (task,) = await ledger.tasks()
    found = await ledger.last_round(task.task_id)
    assert found is not None
    return found.round_id


async def test_an_acknowledged_upload_is_there_after_the_process_ends_at_once(place: str) -> None:
    assert await exit_code(child(ENDS_AFTER_THE_ACKNOWLEDGEMENT, place)) == 7
    async with await Ledger.open(place, migrate=False) as ledger:
        assert await keys_body(ledger, await round_of(ledger), S) == b"body"


async def test_every_acknowledged_upload_is_there_after_a_kill(place: str) -> None:
    process = child(UPLOADS_FOR_EVER, place)
    assert process.stdout is not None
    heard = [await asyncio.to_thread(process.stdout.readline) for _ in range(50)]
    process.send_signal(signal.SIGKILL)
    heard += (await asyncio.to_thread(process.communicate))[0].splitlines(keepends=True)
    acknowledged = {int(line).to_bytes(16) for line in heard if line.endswith("\n")}
    async with await Ledger.open(place, migrate=False) as ledger:
        round_id = await round_of(ledger)
        held = {found.session_id for found in await ledger.session_summaries(round_id)}
        assert acknowledged <= held
        assert len(held - acknowledged) <= 1  # the one under way
        for session_id in held:
            assert await keys_body(ledger, round_id, session_id) == b"body"


async def test_a_transaction_that_its_process_did_not_end_leaves_nothing(place: str) -> None:
    assert await exit_code(child(ENDS_INSIDE_A_TRANSACTION, place)) == 7
    async with await Ledger.open(place, migrate=False) as ledger:
        round_id = await round_of(ledger)
        assert await ledger.session_summaries(round_id) == []
        again = await ledger.put_keys(upload(round_id, S), NOW, require_admission=False, limit=9)
        assert again is Stored.STORED


async def test_a_transaction_that_raises_leaves_nothing(ledger: Ledger) -> None:
    def fails(tx: Connection) -> None:
        tx.execute(text("DELETE FROM rounds"))
        raise RuntimeError("in the middle")

    round_id = await open_round(ledger)
    with pytest.raises(RuntimeError, match="in the middle"):
        await ledger._database.write(fails)
    assert await ledger.round(round_id) is not None


async def test_a_log_that_was_cut_off_loses_the_last_transaction_as_a_whole(tmp_path: Path) -> None:
    source, copy = tmp_path / "ledger.db", tmp_path / "copy.db"
    async with await Ledger.open(f"sqlite:///{source}", migrate=True) as ledger:
        round_id = await open_round(ledger)
        for session_id in (S, OTHER):
            await ledger.put_keys(upload(round_id, session_id), NOW, require_admission=False, limit=9)
        for suffix in ("", "-wal"):  # as a power cut would leave them, in the middle of a commit
            shutil.copyfile(f"{source}{suffix}", f"{copy}{suffix}")
    os.truncate(f"{copy}-wal", os.stat(f"{copy}-wal").st_size - 10)
    async with await Ledger.open(f"sqlite:///{copy}", migrate=False) as ledger:
        assert [found.session_id for found in await ledger.session_summaries(round_id)] == [S]
        assert await keys_body(ledger, round_id, S) == b"body"
        assert await keys_body(ledger, round_id, OTHER) is None


def pragmas(tx: Connection) -> list[object]:
    names = ("journal_mode", "synchronous", "foreign_keys")
    return [tx.execute(text(f"PRAGMA {pragma}")).scalar_one() for pragma in names]


async def test_sqlite_waits_for_the_disk_before_it_acknowledges(tmp_path: Path) -> None:
    async with await Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}", migrate=True) as ledger:
        for run in (ledger._database.read, ledger._database.write):
            assert await run(pragmas) == ["wal", 2, 1]


async def test_a_restart_of_postgresql_is_survived_by_the_next_call(postgres: Postgres) -> None:
    async with await Ledger.open(postgres.empty_database(), migrate=True) as ledger:
        round_id = await open_round(ledger)
        await asyncio.gather(*[ledger.ping() for _ in range(8)])  # every connection of the pool will be stale
        await asyncio.to_thread(postgres.stop)
        with pytest.raises(LedgerUnavailableError, match="cannot be reached"):
            await ledger.ping()
        await asyncio.to_thread(postgres.start)
        answers = [
            ledger.put_keys(upload(round_id, name(f"{at}", 16)), NOW, require_admission=False, limit=99)
            for at in range(16)
        ]
        assert await asyncio.gather(*answers) == [Stored.STORED] * 16


async def test_uploads_during_a_restart_of_postgresql_are_stored_or_told_to_come_back(postgres: Postgres) -> None:
    answers: dict[bytes, Stored | LedgerUnavailableError] = {}
    async with await Ledger.open(postgres.empty_database(), migrate=True) as ledger:
        round_id = await open_round(ledger)
        restart = asyncio.create_task(asyncio.to_thread(postgres.restart))

        async def put(session_id: bytes) -> Stored:
            return await ledger.put_keys(upload(round_id, session_id), NOW, require_admission=False, limit=9999)

        async def put_until_restarted(who: str) -> None:
            while not restart.done():
                session_id = name(f"{who} {len(answers)}", 16)
                try:
                    answers[session_id] = await put(session_id)
                except LedgerUnavailableError as error:
                    answers[session_id] = error
                    await asyncio.sleep(0.02)

        await asyncio.gather(restart, *map(put_until_restarted, "abcdefghij"))
        stored = {session_id for session_id, answer in answers.items() if answer is Stored.STORED}
        assert stored < set(answers)
        assert stored <= {found.session_id for found in await ledger.session_summaries(round_id)}
        for session_id in answers:
            assert await put(session_id) in ({Stored.SAME} if session_id in stored else {Stored.STORED, Stored.SAME})
