"""What was spent stays spent: rounds that are asked for at once, and servers that were restored from a backup."""

import asyncio
import shutil
from dataclasses import replace
from typing import Any

import pytest
from tests.simulation.pair import Pair, a_pair
from tests.simulation.test_noisy_rounds import PRIVACY, TRAINING, budgeted, run_round

from secemb_party.errors import BudgetSpentError, PeerRefusedError
from secemb_party.ledger import NewRound, RoundState
from secemb_party.peer_messages import Announcement, list_digest
from secemb_server1.responder import Responder
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.privacy import BudgetLine
from secemb_shared.messages.spec import EVALUATE, TRAIN

pytestmark = pytest.mark.asyncio

CATCH: dict[str, Any] = {"return_exceptions": True}


async def test_no_round_is_opened_that_cannot_be_afforded_however_often_it_is_announced() -> None:
    async with a_pair(privacy=budgeted("0.9")) as pair:  # room for one
        await run_round(pair)
        answers = await asyncio.gather(*map(Responder(pair.parties[1]).announce, await announcements(pair)), **CATCH)
        assert [type(answer) for answer in answers] == [BudgetSpentError] * 3


async def test_two_rounds_at_once_cannot_spend_what_is_left_for_one() -> None:
    """Nobody opens two rounds at once. If somebody could, their sums would be made one after the other."""
    async with a_pair(privacy=budgeted("0.9")) as pair:
        party, rounds = pair.parties[1], [await sealed_over_nobody(pair, number) for number in (5, 6)]
        answers = await asyncio.gather(*map(party.share, rounds), **CATCH)
        assert sorted(type(answer).__name__ for answer in answers) == ["BudgetSpentError", "FileBlob"]
        assert (await party.spending.standing())[0].shares == 1


async def announcements(pair: Pair) -> list[Announcement]:
    """Return three rounds that server 0 might announce next."""
    published = await pair.parties[1].ledger.published_version(pair.task.task_id)
    assert published is not None
    spec = RoundSpec(task=pair.task, number=0, model_version=published.version, model_digest=published.digest)
    now, shares = pair.clock.now, await pair.parties[0].ledger.shares_by_kind(pair.task.task_id)
    times = {"opened_at": now, "join_until": now + 10, "upload_until": now + 20}
    texts = [replace(spec, number=number).encode().decode() for number in (5, 6, 7)]
    return [Announcement(round=text, shares=shares, check_key=bytes(16).hex(), **times) for text in texts]


async def sealed_over_nobody(pair: Pair, number: int) -> bytes:
    """Bring a round to where its share can be asked for, in server 1's ledger alone, and return its id."""
    ledger, now = pair.parties[1].ledger, pair.clock.now
    spec = RoundSpec(task=pair.task, number=number, model_version=0, model_digest=bytes(32))
    await pair.parties[1].open_round(
        NewRound(
            round_id=spec.digest,
            task_id=pair.task.task_id,
            number=number,
            kind=spec.kind,
            model_version=0,
            spec=spec.encode(),
            opened_at=now,
            join_until=now + 10,
            upload_until=now + 20,
        )
    )
    await ledger.advance(spec.digest, RoundState.OPEN, RoundState.SEALING, now)
    nobody: list[bytes] = []
    digest, before, to = list_digest(nobody), RoundState.SEALING, RoundState.SEALED
    await ledger.advance(spec.digest, before, to, now, sealed_sessions=nobody, list_digest=digest)
    return spec.digest


async def test_of_two_rounds_that_are_announced_at_once_one_is_opened() -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        await run_round(pair)
        answers = await asyncio.gather(*map(Responder(pair.parties[1]).announce, await announcements(pair)), **CATCH)
        assert sum(isinstance(answer, bytes) for answer in answers) == 1


@pytest.mark.parametrize("role", [0, 1])
async def test_a_server_that_has_forgotten_evaluations_does_not_go_on(role: int) -> None:
    """They change no model, so that the two servers look alike, and yet their sums were opened."""
    line = BudgetLine(clip=2**16, multiplier="3", epsilon="100")
    privacy = replace(PRIVACY, train=replace(TRAINING, epsilon="100"), evaluate=line)
    kinds: dict[str, Any] = {"choose_kind": lambda number: EVALUATE if number < 3 else TRAIN, "rounds": 10}
    async with a_pair(privacy=privacy, cohort=2, **kinds) as pair:
        await run_round(pair)
        folder, backup = pair.folder / f"server{role}", pair.folder / "backup"
        await pair.crash(role)
        shutil.copytree(folder, backup)
        for _ in range(2):
            await run_round(pair)
        before = [await pair.parties[each].ledger.shares_by_kind(pair.task.task_id) for each in (0, 1)]
        assert before == [{EVALUATE: 3}] * 2
        await restored(pair, role)
        with pytest.raises(PeerRefusedError):
            await go_on(pair)
        after = [await pair.parties[each].ledger.shares_by_kind(pair.task.task_id) for each in (0, 1)]
        assert after[1 - role] == before[1 - role]
        assert after[role] == {EVALUATE: 1}


async def go_on(pair: Pair) -> None:
    for _ in range(20):
        await pair.step()
        pair.clock.now += pair.task.upload_seconds


async def restored(pair: Pair, role: int) -> None:
    """Put a server back to its backup."""
    folder = pair.folder / f"server{role}"
    await pair.crash(role)
    await pair.parties[role].ledger.close()
    shutil.rmtree(folder)
    shutil.copytree(pair.folder / "backup", folder)
    await pair.start_server(role)
