"""Rounds of a task with noise: each server alone sees as much as was promised, it is drawn once, and it has an end."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tests.devices.scripted import a_device
from tests.simulation.faults import CrashedError
from tests.simulation.pair import Pair, a_pair, a_task
from tests.simulation.round_states import filled, last, step_to

from secemb_party.budget import Spending, Spent, lines_of
from secemb_party.compute import threads
from secemb_party.errors import BudgetSpentError, DamagedShareError
from secemb_party.evaluation import Share
from secemb_party.evaluation import blur as add_promised_noise
from secemb_party.ledger import RoundState
from secemb_party.metric_labels import short_id
from secemb_party.storage import read_all
from secemb_server0.conductor import Finished, Idle, Open
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN
from secemb_shared.privacy import add_noise
from secemb_shared.randomness import RandomBytes

pytestmark = pytest.mark.asyncio

Noise = npt.NDArray[np.int64]

TRAINING = BudgetLine(clip=256, multiplier="3", epsilon="4")
PRIVACY = Privacy(unit="user", delta="0.00001", train=TRAINING)
VARIANCE = (3 * 256) ** 2
LARGE: dict[str, Any] = {"items": 1000, "row_width": 8, "dense_size": 400, "tables": 3, "bins": 40}


@dataclass
class Draws:
    """Every share before and after its noise, in the order in which servers made them."""

    before: list[Share] = field(default_factory=list)
    after: list[Share] = field(default_factory=list)

    def noise(self, at: int) -> Noise:
        """Return the noise of a share, all numbers in one row."""
        return flat(self.after[at]) - flat(self.before[at])


def flat(share: Share) -> Noise:
    """Return the numbers of a share as whole numbers; differences are taken in the ring by whoever subtracts."""
    return np.concatenate([share.rows.reshape(-1), share.dense]).view(np.int32).astype(np.int64)


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch, blur: Any = add_promised_noise) -> Iterator[Draws]:
    """Look at the noise while it is added."""
    draws = Draws()

    def watch(round_: RoundSpec, share: Share, _random_bytes: RandomBytes) -> None:
        draws.before.append(Share(share.rows.copy(), share.dense.copy(), share.sums.copy()))
        blur(round_, share)
        draws.after.append(Share(share.rows.copy(), share.dense.copy(), share.sums.copy()))

    with monkeypatch.context() as patch:
        patch.setattr(threads, "blur", watch)
        yield draws


def in_ring(noise: Noise) -> Noise:
    """Return differences of ring elements as the numbers next to zero."""
    return noise.astype(np.uint32).view(np.int32).astype(np.int64)


def assert_noise(noise: Noise, variance: float) -> None:
    """See that numbers have mean zero and this variance, within six standard errors."""
    assert noise.size > 8000
    assert abs(float(noise.mean())) < 6 * (variance / noise.size) ** 0.5
    assert abs(float(noise.var()) / variance - 1) < 6 * (2 / noise.size) ** 0.5


def change_of(pair: Pair) -> npt.NDArray[np.float64]:
    """Return what the round has added up: SGD with rate 1 has subtracted the mean over two sessions."""
    old, new = (pair.parties[1].models.load(version) for version in (0, 1))
    rows, dense = new.rows.astype(np.float64) - old.rows, new.dense.astype(np.float64) - old.dense
    return -2 * np.concatenate([rows.reshape(-1), dense])


async def test_each_server_alone_sees_the_promised_noise_and_the_model_twice_its_variance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_pair(privacy=PRIVACY, cohort=2, **LARGE) as pair:
        with watched(monkeypatch) as draws:
            devices = await filled(pair, 2)
            await pair.finish()
        own = [in_ring(draws.noise(role)) for role in (0, 1)]
        for noise in own:  # what is left for a server that takes its own off
            assert_noise(noise, VARIANCE)
        assert abs(float(np.mean(own[0] * own[1]))) < 6 * VARIANCE / own[0].size ** 0.5  # drawn apart
        plain = sum(np.concatenate([part.reshape(-1) for part in device.update()]) for device in devices)
        assert_noise(np.rint(change_of(pair) - plain).astype(np.int64), 2 * VARIANCE)


async def test_half_the_variance_from_each_server_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_in_the_paper(round_: RoundSpec, share: Share) -> None:
        assert round_.task.privacy is not None
        for part in (share.rows, share.dense):
            add_noise(part, variance=round_.task.privacy.rows.variance // 2)

    async with a_pair(privacy=PRIVACY, cohort=2, **LARGE) as pair:
        with watched(monkeypatch, as_in_the_paper) as draws:
            await filled(pair, 2)
            await pair.finish()
        with pytest.raises(AssertionError):
            assert_noise(in_ring(draws.noise(0)), VARIANCE)


async def test_rows_and_dense_part_that_are_cut_apart_get_noise_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    shape: dict[str, Any] = {**LARGE, "dense_size": 9000}
    async with a_pair(privacy=replace(PRIVACY, dense_clip=64), cohort=2, **shape) as pair:
        with watched(monkeypatch) as draws:
            await filled(pair, 2)
            await pair.finish()
        rows, dense = np.split(in_ring(draws.noise(1)), [8000])
        assert_noise(np.concatenate([rows, in_ring(draws.noise(0))[:8000]]), 2 * VARIANCE)
        assert_noise(dense, 2 * (3 * 64) ** 2)


async def test_a_task_without_privacy_has_exact_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(cohort=2, **LARGE) as pair:
        with watched(monkeypatch) as draws:
            await filled(pair, 2)
            await pair.finish()
        assert not draws.noise(0).any()
        assert not draws.noise(1).any()
        assert await pair.parties[0].spending.standing() == []


# Once.


async def test_who_asks_for_a_share_at_the_same_time_gets_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        await filled(pair)
        await step_to(pair, RoundState.SEALED)
        party, record = pair.parties[0], await last(pair, 0)
        with watched(monkeypatch) as draws:
            found = await asyncio.gather(*[party.share(record.round_id) for _ in range(5)])
            found += [await party.share(record.round_id)]
        assert len({read_all(one) for one in found}) == len(draws.after) == 1


async def test_who_goes_away_while_noise_is_drawn_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        await filled(pair)
        await step_to(pair, RoundState.SEALED)
        party, record = pair.parties[0], await last(pair, 0)
        drawing, go_on = threading.Event(), threading.Event()

        def slowly(round_: RoundSpec, share: Share) -> None:
            drawing.set()
            go_on.wait(10)
            add_promised_noise(round_, share)

        with watched(monkeypatch, slowly) as draws:
            asking = asyncio.create_task(party.share(record.round_id))
            await asyncio.to_thread(drawing.wait, 10)
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)
            again = asyncio.create_task(party.share(record.round_id))
            await asyncio.sleep(0.05)
            go_on.set()
            data = await again
        assert len(draws.after) == 1
        assert read_all(data) == draws.after[0].encode()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(  # server 1 has ended the round after its seventh write
    ("role", "writes"), [(role, writes) for role, most in ((0, 8), (1, 7)) for writes in range(most)]
)
async def test_a_server_killed_at_any_write_spends_once_and_both_count_alike(
    role: int, writes: int, after: bool
) -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        await filled(pair)
        await step_to(pair, RoundState.SEALED if role == 0 else RoundState.SHARED)
        pair.fuses[role].light(writes, after=after)
        for _ in range(3):
            await pair.step()
        await pair.finish()
        standings = [await pair.parties[each].spending.standing() for each in (0, 1)]
        assert standings[0] == standings[1]
        assert [one.shares for one in standings[0]] == [1]
        records = [await last(pair, each) for each in (0, 1)]
        assert records[0].next_version == records[1].next_version == 1
        _, spec = await pair.parties[0].round(records[0].round_id)
        # The bytes that each server has stored and counted are those that the model was made from.
        kept = [Share.decode(spec, read_all(await pair.parties[each].share(spec.digest))) for each in (0, 1)]
        total = pair.task.ring.decode((kept[0] + kept[1]).rows)
        assert np.allclose(-3 * pair.parties[1].models.load(1).rows, total)


# The end.


async def run_round(pair: Pair) -> None:
    """Let two devices take part in the next round."""
    assert isinstance(await pair.step(), Open)
    record = await last(pair, 0)
    for power in range(2):
        device = a_device(pair, power, name=bytes([record.number, power]) * 8)
        await device.join()
        if device.spec.sum_size:
            device.write_sum([1.0] * device.spec.sum_size)
        await device.take_part()
    await pair.finish()


def generous(pair: Pair, role: int) -> None:
    """Let a server believe that everything is allowed."""
    party, task = pair.parties[role], replace(pair.task, privacy=None)
    party.spending = Spending(task, party.ledger, party.workers, party.metrics)


async def test_a_task_ends_at_its_budget_on_both_servers() -> None:
    limit = lines_of(_with_budget("1.4"))[TRAIN].rounds()
    assert limit == 2
    async with a_pair(privacy=budgeted("1.4")) as pair:
        spent: list[list[Spent]] = []
        for _ in range(limit):
            await run_round(pair)
            spent.append(await pair.parties[0].spending.standing())
            assert spent[-1] == await pair.parties[1].spending.standing()
        assert 0 < spent[0][0].epsilon < spent[1][0].epsilon <= 1.4
        assert [one[0].remaining for one in spent] == [1, 0]
        assert await pair.step() == Finished()
        for role in (0, 1):
            await pair.crash(role)
        assert await pair.step() == Finished()


async def test_server_1_refuses_a_round_that_it_cannot_afford_whatever_server_0_thinks() -> None:
    async with a_pair(privacy=budgeted("1.4")) as pair:
        for _ in range(2):
            await run_round(pair)
        generous(pair, 0)
        assert isinstance(await pair.step(), Open)
        assert (await last(pair, 0)).reason == "the privacy budget of server 1 is spent"
        assert (await last(pair, 1)).number == 1


async def test_a_share_that_cannot_be_afforded_is_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        await filled(pair)
        await step_to(pair, RoundState.SEALED)
        party, record = pair.parties[1], await last(pair, 1)
        party.spending = Spending(_with_budget("0.001"), party.ledger, party.workers, party.metrics)
        with watched(monkeypatch) as draws, pytest.raises(BudgetSpentError):
            await party.share(record.round_id)
        assert draws.after == []
        assert (await last(pair, 1)).share_digest is None


async def test_a_share_on_the_disk_is_used_although_the_ledger_does_not_know_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        await filled(pair)
        await step_to(pair, RoundState.SEALED)
        party, record = pair.parties[1], await last(pair, 1)
        pair.fuses[1].light(0, after=True)  # it dies when the share is stored and not recorded
        with watched(monkeypatch) as draws:
            with pytest.raises(CrashedError):
                await party.share(record.round_id)
            await pair.crash(1)
            found = await pair.parties[1].share(record.round_id)
        assert len(draws.after) == 1
        assert read_all(found) == draws.after[0].encode()


async def test_a_share_over_another_list_stops_the_server() -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        await filled(pair)
        await step_to(pair, RoundState.SEALED)
        party, record = pair.parties[1], await last(pair, 1)
        party._shares.save(record.round_id, bytes(32), b"a share of other sessions, from before a backup")
        with pytest.raises(DamagedShareError, match="different list"):
            await party.share(record.round_id)


@pytest.mark.parametrize("lost", [0, 1])
async def test_server_0_ends_the_task_where_server_1_has_nothing_left(lost: int) -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        party = pair.parties[1]
        party.spending = Spending(_with_budget("0.001"), party.ledger, party.workers, party.metrics)
        pair.line.let_pass, pair.line.lose_responses = 1, lost  # server 0 meets server 1, then announces the round
        assert isinstance([await pair.step() for _ in range(1 + lost)][-1], Idle if lost else Open)
        assert (await last(pair, 0)).state is RoundState.ABORTED
        assert await pair.step() == Finished()
        assert pair.line.broken == []


async def test_an_evaluation_that_server_1_cannot_afford_does_not_end_training() -> None:
    line = BudgetLine(clip=2**16, multiplier="3", epsilon="2")
    privacy = replace(PRIVACY, evaluate=line)
    async with a_pair(privacy=privacy, choose_kind=lambda _: EVALUATE, cohort=2) as pair:
        party = pair.parties[1]
        poorer = replace(pair.task, privacy=replace(privacy, evaluate=replace(line, epsilon="0.001")))
        party.spending = Spending(poorer, party.ledger, party.workers, party.metrics)
        assert isinstance(await pair.step(), Open)
        assert (await last(pair, 0)).reason == "the privacy budget of server 1 is spent"
        for number in (1, 2):  # nor is it asked again
            await run_round(pair)
            assert ((await last(pair, 0)).number, (await last(pair, 0)).kind) == (number, TRAIN)
            assert (await last(pair, 0)).state is RoundState.PUBLISHED


async def test_surveys_and_evaluations_have_budgets_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    line = BudgetLine(clip=2**16, multiplier="3", epsilon="2")
    kinds = [SURVEY, EVALUATE, EVALUATE, EVALUATE, TRAIN]
    privacy = replace(PRIVACY, evaluate=line)
    async with a_pair(privacy=privacy, choose_kind=lambda number: kinds[number], cohort=2) as pair:
        with watched(monkeypatch) as draws:
            for _ in kinds:
                await run_round(pair)
        rounds = await pair.parties[1].ledger.rounds(pair.task.task_id, limit=9)
        # There is no budget for surveys, and for two evaluations only: they give way to training.
        assert [record.kind for record in reversed(rounds)] == [TRAIN, EVALUATE, EVALUATE, TRAIN, TRAIN]
        assert {one.kind: one.shares for one in await pair.parties[1].spending.standing()} == {TRAIN: 3, EVALUATE: 2}
        evaluated = [at for at, share in enumerate(draws.after) if share.sums.size]
        assert len(evaluated) == 4
        assert all((draws.after[at].sums != draws.before[at].sums).any() for at in evaluated)


async def test_what_was_spent_is_measured() -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        await run_round(pair)
        for role in (0, 1):
            shown, short = pair.parties[role].metrics.render().decode(), short_id(pair.task.task_id)
            (standing,) = await pair.parties[role].spending.standing()
            assert f'secemb_privacy_epsilon{{kind="train",task="{short}"}} {standing.epsilon}' in shown
            assert f'secemb_privacy_rounds_left{{kind="train",task="{short}"}} {float(standing.remaining)}' in shown


def budgeted(epsilon: str) -> Privacy:
    return replace(PRIVACY, train=replace(TRAINING, epsilon=epsilon, multiplier="4.5"))


def _with_budget(epsilon: str) -> TaskSpec:
    return a_task(privacy=budgeted(epsilon))
