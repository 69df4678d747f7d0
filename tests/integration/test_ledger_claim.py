"""One server works with a ledger: a second one is refused, commands are not, and a claim outlives a restart."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.integration.databases import NOW, Postgres, name

from secemb_party.errors import LedgerError, LedgerTakenError, LedgerUnavailableError
from secemb_party.ledger import Ledger, NewToken
from secemb_party.operators import Order

PHONE = NewToken("phone", name("token"))

pytestmark = pytest.mark.asyncio
_HOLD = """
import asyncio, sys
from secemb_party.ledger import Ledger
async def hold():
    ledger = await Ledger.open(sys.argv[1], migrate=False, patience=0.0)
    print("claimed", flush=True)
    await asyncio.sleep(600)
asyncio.run(hold())
"""


@contextmanager
def holder(url: str) -> Iterator[None]:
    """Let another process claim the ledger, and kill it."""
    with subprocess.Popen([sys.executable, "-c", _HOLD, url], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "claimed\n"
            yield
        finally:
            process.kill()


async def serve(url: str, patience: float = 0.0) -> Ledger:
    return await Ledger.open(url, migrate=False, patience=patience)


async def test_a_second_server_is_refused_and_says_what_to_do(home: str) -> None:
    async with await serve(home):
        with pytest.raises(LedgerTakenError, match="stop it"):
            await serve(home)
    async with await serve(home) as again:
        await again.ping()


async def test_commands_use_the_ledger_of_a_server_that_runs(home: str) -> None:
    async with await serve(home), await Ledger.open(home, migrate=False) as command:
        await command.add_tokens([PHONE], Order("tests"), NOW)


async def test_a_killed_server_gives_its_claim_back(home: str) -> None:
    with holder(home), pytest.raises(LedgerTakenError):
        await serve(home)
    async with await serve(home, patience=30.0) as ledger:
        await ledger.claim()


async def test_a_server_waits_for_the_one_before_it_to_end(home: str) -> None:
    first = await serve(home)
    waiting = asyncio.create_task(serve(home, patience=60.0))
    await asyncio.sleep(0.5)
    assert not waiting.done()
    await first.close()
    async with await waiting as second:
        await second.ping()


async def test_a_claim_is_made_again_after_postgresql_has_restarted(postgres: Postgres) -> None:
    url = postgres.ledger_database()
    async with await serve(url) as ledger:
        await asyncio.to_thread(postgres.stop)
        with pytest.raises(LedgerUnavailableError):
            await ledger.claim()
        await asyncio.to_thread(postgres.start)
        await ledger.claim()
        with pytest.raises(LedgerTakenError):
            await serve(url)


async def test_a_server_whose_claim_went_to_another_writes_nothing_more(postgres: Postgres) -> None:
    url = postgres.ledger_database()
    async with await serve(url) as ledger:
        await asyncio.to_thread(postgres.restart)
        async with await serve(url, patience=10.0):
            with pytest.raises(LedgerTakenError):
                await ledger.claim()
            with pytest.raises(LedgerUnavailableError, match="taken over"):
                await ledger.add_tokens([PHONE], Order("tests"), NOW)
            assert await ledger.token(name("token")) is None
        await ledger.claim()
        await ledger.add_tokens([PHONE], Order("tests"), NOW)


async def test_a_claim_in_a_place_that_cannot_be_written_is_refused_in_words(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    await (await Ledger.open(url, migrate=True)).close()
    (tmp_path / "ledger.db.lock").mkdir()
    with pytest.raises(LedgerError, match="lock"):
        await serve(url)
