"""What a home is good for whose app dies between two writes, or that is put back or copied."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.devices.phone import KilledError, MortalHome, Phone, Seen, a_phone, contributed, puts, until_contributed
from tests.simulation.pair import RELAYED, a_pair
from tests.simulation.test_device_faults import enrol
from tests.simulation.test_noisy_rounds import PRIVACY

from secemb_sdk.home.receipts import Receipt
from secemb_sdk.home.records import Record
from secemb_sdk.round.contribute import Contributed, Dropped, NotNow

pytestmark = pytest.mark.asyncio

BOTH_WAYS = pytest.mark.parametrize("changes", [{}, RELAYED], ids=["direct", "relayed"])


def dying_at(patch: pytest.MonkeyPatch, phone: Phone, *, name: str, times: int = 1, after: bool = False) -> None:
    """Let the app die the next times it writes this record: before it does, or after."""
    honest, left = MortalHome.write, iter(range(times))

    def write(self: MortalHome, written: str, record: Record) -> None:
        dies = written == name and self.folder == phone.folder and next(left, None) is not None
        if not dies or after:
            honest(self, written, record)
        if dies:
            raise KilledError

    patch.setattr(MortalHome, "write", write)


def receipts(phone: Phone) -> list[Receipt]:
    context = phone.open()
    try:
        return context.vault.receipts()
    finally:
        context.vault.close()


def steps_of(phone: Phone) -> int:
    context = phone.open()
    try:
        private = context.vault.private()
        return 0 if private is None else private.steps
    finally:
        context.vault.close()


# Once in a round.


@BOTH_WAYS
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_device_that_is_killed_twice_is_in_a_round_once(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], after: bool
) -> None:
    async with a_pair(privacy=PRIVACY, **changes) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        dying_at(monkeypatch, phone, name="rounds", times=2, after=after)
        for _ in range(5):
            await phone.contribute()
        assert phone.deaths
        assert len(phone.seen.rounds) <= 1
        await contributed(a_phone(pair, 1))
        await until_contributed([phone, a_phone(pair, 2)])  # in the next round at the latest


async def test_without_privacy_a_device_that_is_killed_there_takes_part_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        dying_at(monkeypatch, phone, name="rounds", after=True)
        assert await phone.contribute() is None
        await contributed(phone)


@BOTH_WAYS
async def test_a_device_that_cannot_tell_where_it_was_sits_a_round_out(changes: dict[str, Any]) -> None:
    async with a_pair(privacy=PRIVACY, **changes) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        for phone in phones:
            await contributed(phone)
        (phones[0].folder / "rounds").write_bytes(b"damaged")
        for _ in range(2):
            assert isinstance(await phones[0].contribute(), NotNow)
        assert len(phones[0].seen.rounds) == 1
        await pair.finish()
        await pair.step()
        await contributed(phones[0])


# Receipts.


@BOTH_WAYS
@pytest.mark.parametrize(("name", "after"), [("receipts", True), ("private", False), ("private", True)])
async def test_what_both_servers_have_acknowledged_stays_complete(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], name: str, after: bool
) -> None:
    """The app comes back when nobody knows the session any more; what is left to do is done without asking."""
    async with a_pair(**changes) as pair:
        await pair.step()
        phone, others = a_phone(pair, 0), [a_phone(pair, 1), a_phone(pair, 2)]
        dying_at(monkeypatch, phone, name=name, after=after)
        assert await phone.contribute() is None
        await contributed(others[0])
        await pair.finish()
        for _ in range(2):
            await pair.step()
            await until_contributed(others)
            await pair.finish()
            for role in (0, 1):
                await pair.collect_garbage(role)
        sent = puts(phone)
        outcome = await phone.contribute()
        assert isinstance(outcome, Contributed)
        assert receipts(phone) == [outcome.receipt]
        assert outcome.receipt.complete
        assert steps_of(phone) == 1
        assert puts(phone) == sent


async def test_a_session_that_was_given_up_does_not_become_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(join_seconds=300, upload_seconds=900) as pair:
        await pair.step()
        phone, others = a_phone(pair, 0), [a_phone(pair, 1), a_phone(pair, 2)]
        phone.fault = lambda: "lost" if phone.sent_at[-1][0] == "update" else "fine"
        assert isinstance(await phone.contribute(), NotNow)
        phone.fault = lambda: "fine"
        for other in others:
            await contributed(other)
        await pair.finish()
        dying_at(monkeypatch, phone, name="receipts", after=True)
        assert await phone.contribute() is None
        await pair.step()
        await contributed(phone)
        assert [one.complete for one in receipts(phone)] == [False, True]
        assert steps_of(phone) == 1


# Homes that were put back or copied.


def stages(phone: Phone) -> Iterator[Path]:
    """Yield a backup of the home before each request of a round."""
    for number in range(20):
        backup = phone.folder.with_name(f"backup{number}")
        if backup.exists():
            yield backup


@BOTH_WAYS
@pytest.mark.parametrize("copied", [False, True], ids=["restored", "copied"])
async def test_no_path_is_used_again_in_a_home_that_was_restored_or_copied(
    changes: dict[str, Any], copied: bool
) -> None:
    async with a_pair(open_enrolment=False, join_seconds=300, upload_seconds=900, **changes) as pair:
        await pair.step()
        phone = await enrol(pair, 0, Seen())
        backups = iter(range(20))

        def fault() -> str:
            shutil.copytree(phone.folder, phone.folder.with_name(f"backup{next(backups)}"))
            return "fine"

        phone.fault = fault
        await contributed(phone)
        phone.fault = lambda: "fine"
        tried = 0
        for backup in stages(phone):
            if copied:
                phone.folder = backup
            else:
                shutil.rmtree(phone.folder)
                shutil.copytree(backup, phone.folder)
            began = (phone.folder / "session").exists()
            outcome = await phone.contribute()
            assert isinstance(outcome, NotNow | Dropped)
            phone.seen.check()
            tried += began
        assert tried >= 3  # the wish, the keys and the update at the least


async def test_an_old_session_that_is_put_back_alone_is_dropped() -> None:
    async with a_pair(join_seconds=300, upload_seconds=900) as pair:
        await pair.step()
        phones = [a_phone(pair, number) for number in range(2)]
        phones[0].fault = lambda: "lost" if phones[0].sent_at[-1][0] == "update" else "fine"
        assert isinstance(await phones[0].contribute(), NotNow)
        kept = (phones[0].folder / "session").read_bytes()
        phones[0].fault = lambda: "fine"
        for phone in phones:
            await contributed(phone)
        await pair.finish()
        await pair.step()
        for phone in phones:
            await contributed(phone)
        (phones[0].folder / "session").write_bytes(kept)
        before = puts(phones[0]), receipts(phones[0])
        assert isinstance(await phones[0].contribute(), Dropped)
        assert (puts(phones[0]), receipts(phones[0])) == before
        assert steps_of(phones[0]) == 2  # not back to what the old session would have left
