"""A server that was restored from a backup: no second sum of a round, nothing forgotten that was spent."""

import shutil
import tarfile
from contextlib import suppress
from pathlib import Path

import pytest
from tests.devices.scripted import a_device
from tests.simulation.pair import Pair, a_pair
from tests.simulation.test_noisy_rounds import budgeted, run_round
from tests.simulation.test_rollback import run_rounds, take_part

from secemb_party.errors import LedgerConflictError, PeerRefusedError, RoundAbortedError
from secemb_party.ledger import Ledger, RoundRecord, RoundState
from secemb_party.peer_messages import list_digest
from secemb_party.storage import read_all
from secemb_server0.conductor import Open
from secemb_server1.responder import Responder
from secemb_shared.errors import SecEmbError
from secemb_shared.messages.spec import TRAIN
from secemb_tools.errors import OperationError
from secemb_tools.operate.backup import Origin, read_backup, write_backup

pytestmark = pytest.mark.asyncio


async def back_up(pair: Pair, role: int) -> Path:
    """Make a backup of a server that runs."""
    path = pair.folder / f"server{role}.backup"
    await write_backup(pair.parties[role].ledger, origin(pair, role), path)
    return path


async def restore(pair: Pair, role: int, backup: Path) -> None:
    """Lose the whole data directory of a server, put the backup in its place and start it."""
    folder = pair.folder / f"server{role}"
    pair.fuses[role].dead = True
    pair.parties[role].workers.close()
    await pair.parties[role].ledger.close()
    shutil.rmtree(folder)
    folder.mkdir()
    async with await Ledger.open(f"sqlite:///{folder}/ledger.db", migrate=True) as ledger:
        await read_backup(ledger, origin(pair, role), backup)
    await pair.start_server(role)
    assert await pair.parties[role].inventory.faults() == []


def origin(pair: Pair, role: int) -> Origin:
    return Origin(pair.folder / f"server{role}", role, pair.task)


async def go_on(pair: Pair) -> None:
    for _ in range(20):
        await pair.step()
        pair.clock.now += pair.task.upload_seconds


async def open_round(pair: Pair) -> RoundRecord:
    """Open a round and let two devices take part in it."""
    while not isinstance(await pair.step(), Open):
        pass
    await take_part(pair)
    record = await pair.parties[0].ledger.current_round(pair.task.task_id)
    assert record is not None
    return record


async def shared(pair: Pair, role: int) -> int:
    return (await pair.parties[role].ledger.shares_by_kind(pair.task.task_id)).get(TRAIN, 0)


@pytest.mark.parametrize("role", [0, 1])
async def test_restored_between_two_rounds_the_pair_goes_on(role: int) -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 2)
        await restore(pair, role, await back_up(pair, role))
        await run_rounds(pair, 2)
        assert [await shared(pair, each) for each in (0, 1)] == [4, 4]


@pytest.mark.parametrize("role", [0, 1])
async def test_restored_in_an_open_round_both_servers_abort_it_and_go_on(role: int) -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 1)
        number = (await open_round(pair)).number
        await restore(pair, role, await back_up(pair, role))
        await pair.finish()
        await run_rounds(pair, 1)
        for each in (0, 1):
            found = {one.number: one.state for one in await pair.parties[each].ledger.rounds(pair.task.task_id)}
            assert found[number] is RoundState.ABORTED
            assert found[max(found)] is RoundState.PUBLISHED
            assert await shared(pair, each) == 2


async def test_a_restored_server_0_passes_over_the_numbers_of_rounds_that_were_aborted_since() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 1)
        backup = await back_up(pair, 0)
        await go_on(pair)  # nobody comes: rounds open and are aborted
        seen = await pair.parties[1].ledger.last_round(pair.task.task_id)
        await restore(pair, 0, backup)
        for _ in range(50):
            await pair.step()
            if (open_now := pair.server0.leader.door.record) is not None:
                break
        assert seen is not None
        assert open_now is not None
        assert open_now.number == seen.number + 1  # a round that was open at server 1 has ended: its key was lost
        await take_part(pair)
        await pair.finish()
        assert [await shared(pair, each) for each in (0, 1)] == [2, 2]


@pytest.mark.parametrize("role", [0, 1])
async def test_restored_after_its_share_a_server_sends_the_same_bytes_and_the_round_is_published(role: int) -> None:
    async with a_pair() as pair:
        record = await open_round(pair)
        pair.clock.now += pair.task.join_seconds
        for _ in range(20):
            await pair.step()
            held = await pair.parties[role].ledger.current_round(pair.task.task_id)
            if held is not None and held.share_digest is not None:
                break
        before = read_all(await pair.parties[role].share(record.round_id))
        await restore(pair, role, await back_up(pair, role))
        assert read_all(await pair.parties[role].share(record.round_id)) == before
        await pair.finish()
        assert [await shared(pair, each) for each in (0, 1)] == [1, 1]


@pytest.mark.parametrize("role", [0, 1])
async def test_a_sum_that_was_opened_since_is_not_forgotten(role: int) -> None:
    """The budget has room for one round. The restored server has forgotten it; the other one has not, and stops."""
    async with a_pair(privacy=budgeted("0.9")) as pair:
        backup = await back_up(pair, role)
        await run_round(pair)
        await restore(pair, role, backup)
        assert await shared(pair, role) == 0
        with suppress(PeerRefusedError):  # of server 1; server 0 stops by itself
            await go_on(pair)
        assert await shared(pair, role) == 0
        assert await shared(pair, 1 - role) == 1


async def test_a_restored_server_1_opens_no_sum_over_a_second_set_whatever_server_0_asks() -> None:
    """Two sums over sets that differ by one device would reveal what that device sent."""
    async with a_pair(min_cohort=2) as pair:
        record = await open_round(pair)
        third = a_device(pair, 2, name=b"third session id")
        await third.take_part()
        backup = await back_up(pair, 1)
        await pair.finish()
        summed = await pair.parties[0].ledger.round(record.round_id)
        assert summed is not None
        assert summed.state is RoundState.PUBLISHED
        listed = list(summed.sealed_sessions or ())
        assert len(listed) == 3
        held = await pair.parties[0].ledger.session_summaries(record.round_id)
        offered = {one.session_id: (one.keys_public_digest or b"", one.update_public_digest or b"") for one in held}
        await restore(pair, 1, backup)
        responder, asked = Responder(pair.parties[1]), {name: offered[name] for name in listed[:2]}
        with pytest.raises(RoundAbortedError, match="restored from a backup"):
            await responder.prepare(record.round_id, asked)
        for some in (listed[:2], listed):
            with pytest.raises(SecEmbError):
                await responder.commit(record.round_id, some)
            with pytest.raises(SecEmbError):
                await responder.share(record.round_id, list_digest(some))


@pytest.mark.parametrize("role", [0, 1])
async def test_a_backup_has_nothing_that_a_device_has_sent(role: int) -> None:
    async with a_pair() as pair:
        record = await open_round(pair)
        bodies = []
        names = [one.session_id for one in await pair.parties[role].ledger.session_summaries(record.round_id)]
        async for batch in pair.parties[role].ledger.read_bodies(record.round_id, names, batch=9):
            bodies += [body for one in batch for body in (one.keys, one.update)]
        assert len(bodies) == 4
        backup = await back_up(pair, role)
        with tarfile.open(backup) as tar:
            (ledger,) = (member for member in tar.getmembers() if member.name == "ledger.jsonl")
            file = tar.extractfile(ledger)
            assert file is not None
            assert not any(line.startswith(b'["bodies"') for line in file)
        assert not any(body in backup.read_bytes() for body in bodies)
        assert backup.stat().st_mode & 0o077 == 0


async def test_a_restore_overwrites_nothing_and_takes_nothing_that_was_altered() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 1)
        backup, empty = await back_up(pair, 1), pair.folder / "empty"
        ledger, place = pair.parties[1].ledger, origin(pair, 1)
        with pytest.raises((LedgerConflictError, OperationError), match="in use"):
            await read_backup(ledger, place, backup)
        empty.mkdir()
        async with await Ledger.open(f"sqlite:///{empty}/ledger.db", migrate=True) as fresh:
            there = Origin(empty, 1, pair.task)
            whole = backup.read_bytes()
            at = whole.index(b'["model_versions"')
            for content, words in (
                (whole[:at] + b"X" + whole[at + 1 :], "altered"),
                (whole[: len(whole) // 2], "truncated|incomplete|altered|corrupted"),
                (b"", "not a backup"),
            ):
                backup.write_bytes(content)
                with pytest.raises(OperationError, match=words):
                    await read_backup(fresh, there, backup)
            backup.write_bytes(whole)
            with pytest.raises(OperationError, match="server 1"):
                await read_backup(fresh, Origin(empty, 0, pair.task), backup)
            assert {path.name for path in empty.iterdir()} <= {"ledger.db", "ledger.db-wal", "ledger.db-shm"}
            await read_backup(fresh, there, backup)
            assert await fresh.published_version(pair.task.task_id) == await ledger.published_version(pair.task.task_id)
