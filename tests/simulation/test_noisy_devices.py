"""What a device does in a task with noise: it cuts what it says, and where chance decides it sits rounds out."""

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.devices.phone import Marking, Phone, a_phone, contributed, until_contributed
from tests.simulation.pair import RELAYED, Pair, a_pair, a_task
from tests.simulation.round_states import last
from tests.simulation.test_noisy_rounds import PRIVACY, TRAINING, Draws, watched
from tests.unit.noise_bytes import SeededSource

from secemb_party.evaluation import Share
from secemb_party.ledger import RoundRecord
from secemb_sdk.errors import MisfitError
from secemb_sdk.models import Floats, Gradients, Ratings
from secemb_sdk.round.contribute import Contributed, NotNow
from secemb_sdk.round.join import takes_part
from secemb_sdk.steps import Answer, Request
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.messages.spec import EVALUATE, SURVEY
from secemb_shared.secure_sum import SUM_RING

pytestmark = pytest.mark.asyncio

CLIP = TRAINING.clip
SUMS = BudgetLine(clip=2 << 16, multiplier="3", epsilon="20")


def no_noise(_round: RoundSpec, _share: Share) -> None:
    """Let a test see what devices have added."""


async def plain_sum(pair: Pair, phones: list[Phone], draws: Draws) -> Share:
    """Return what devices have added up in a round, before noise."""
    await pair.step()
    for phone in phones:
        await contributed(phone)
    await pair.finish()
    return draws.before[0] + draws.before[1]


def loud(pair: Pair, mark: int) -> list[Phone]:
    """Return a device that shouts, and one that has nothing to say, so that the sum is the first one's update."""
    silent = Phone(pair, pair.folder / "silent", Marking(1))
    phone = Phone(pair, pair.folder / "loud", Marking(mark))
    phone.log({0: 4.0, 3: 2.0})
    return [phone, silent]


def lengths(pair: Pair, total: Share) -> tuple[float, float]:
    """Return how long rows and dense part are, in steps."""
    ring = pair.task.ring
    return float(np.linalg.norm(ring.decode(total.rows))), float(np.linalg.norm(ring.decode(total.dense)))


@pytest.mark.parametrize("changes", [{}, RELAYED], ids=["direct", "relayed"])
async def test_a_whole_update_is_cut_to_the_clip(monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]) -> None:
    async with a_pair(privacy=PRIVACY, cohort=2, **changes) as pair:
        with watched(monkeypatch, no_noise) as draws:
            rows, dense = lengths(pair, await plain_sum(pair, loud(pair, 500), draws))
        assert CLIP - 2 < np.hypot(rows, dense) <= CLIP  # cut to whole steps
        assert dense > 0


async def test_without_privacy_only_the_bound_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(cohort=2) as pair:
        with watched(monkeypatch, no_noise) as draws:
            rows, dense = lengths(pair, await plain_sum(pair, loud(pair, 500), draws))
        assert rows > 700
        assert dense == 500


async def test_rows_and_dense_part_may_be_cut_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(privacy=replace(PRIVACY, dense_clip=64), cohort=2) as pair:
        with watched(monkeypatch, no_noise) as draws:
            rows, dense = lengths(pair, await plain_sum(pair, loud(pair, 500), draws))
        assert CLIP - 2 < rows <= CLIP
        assert 62 < dense <= 64


async def test_each_rating_is_cut_where_the_record_is_the_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(privacy=replace(PRIVACY, unit="record"), cohort=2) as pair:
        with watched(monkeypatch, no_noise) as draws:
            total = await plain_sum(pair, loud(pair, 500), draws)
        by_row, by_dense = pair.task.ring.decode(total.rows), pair.task.ring.decode(total.dense)
        for item in (0, 3):  # each with its half of the dense part, which both move alike
            assert CLIP - 2 < np.hypot(np.linalg.norm(by_row[item]), np.linalg.norm(by_dense / 2)) <= CLIP
        assert np.count_nonzero(by_row.any(axis=1)) == 2


async def test_records_are_cut_in_one_epoch_only() -> None:
    async with a_pair(privacy=replace(PRIVACY, unit="record")) as pair:
        await pair.step()
        phone = a_phone(pair, 0, options={"epochs": 2})
        with pytest.raises(MisfitError, match="epochs=1"):
            await phone.contribute()
        assert not phone.seen.bodies


@pytest.mark.parametrize("kind", [SURVEY, EVALUATE])
async def test_what_is_said_about_oneself_is_cut_as_well(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    privacy = replace(PRIVACY, survey=SUMS, evaluate=SUMS)
    async with a_pair(privacy=privacy, cohort=2, choose_kind=lambda _: kind) as pair:
        phones = loud(pair, 1)
        phones[0].options = {"hold_out": 0.999}
        phones[0].log(dict.fromkeys(range(4), 5.0))
        with watched(monkeypatch, no_noise) as draws:
            total = await plain_sum(pair, phones, draws)
        assert 1.99 < float(np.linalg.norm(SUM_RING.decode(total.sums))) <= 2.0


async def test_a_kind_of_round_without_a_budget_gets_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_pair(privacy=PRIVACY, cohort=2, choose_kind=lambda _: SURVEY) as pair:
        for party in pair.parties.values():  # both servers have lost their scruples
            monkeypatch.setattr(party.spending, "affords", _always)
        await pair.step()
        outcomes = [await phone.contribute() for phone in loud(pair, 1)]
        assert [outcome.trouble for outcome in outcomes if isinstance(outcome, Contributed)] == ["RefusedError"] * 2


async def _always(_kind: str) -> bool:
    return True


# Once.


@pytest.mark.parametrize("changes", [{}, RELAYED], ids=["direct", "relayed"])
async def test_a_device_takes_part_in_a_round_once(changes: dict[str, Any]) -> None:
    async with a_pair(privacy=PRIVACY, **changes) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        await contributed(phone)
        for _ in range(3):
            assert isinstance(await phone.contribute(), NotNow)
        await contributed(a_phone(pair, 1))
        assert (await pair.parties[0].ledger.counts((await last(pair, 0)).round_id)).admitted == 2
        await pair.finish()
        await pair.step()
        await contributed(phone)  # the next round is another one


async def test_who_forgets_or_is_dropped_has_still_been_in_the_round() -> None:
    async with a_pair(privacy=PRIVACY) as pair:
        await pair.step()
        phone = a_phone(pair, 0, dies=lambda: False)
        await contributed(phone)
        parts = phone.open()
        parts.vault.forget(receipts=True)
        parts.vault.close()
        phone.log({0: 4.0})
        assert isinstance(await phone.contribute(), NotNow)


@pytest.mark.parametrize("earlier", [False, True], ids=["new", "old"])
@pytest.mark.parametrize("changes", [{}, RELAYED], ids=["direct", "relayed"])
async def test_a_home_that_was_restored_sits_a_round_out_that_it_may_have_been_in(
    earlier: bool, changes: dict[str, Any]
) -> None:
    async with a_pair(privacy=PRIVACY, cohort=4, open_enrolment=True, **changes) as pair:
        phone, other = a_phone(pair, 0), a_phone(pair, 1)
        await pair.step()
        if earlier:
            for one in (phone, other):
                await contributed(one)
            await pair.finish()
            await pair.step()
        backup = phone.folder.with_name("backup")
        shutil.copytree(phone.folder, backup)
        await contributed(phone)
        shutil.rmtree(phone.folder)
        shutil.copytree(backup, phone.folder)
        for _ in range(2):
            assert isinstance(await phone.contribute(), NotNow)
        await contributed(other)
        assert (await pair.parties[0].ledger.counts((await last(pair, 0)).round_id)).admitted == 2
        await pair.finish()
        await pair.step()
        await contributed(phone)  # by now it knows again


@pytest.mark.parametrize("why", ["it was in it", "chance"])
async def test_a_round_that_server_0_did_not_show_before_is_heeded_as_well(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relayed transport: server 0 shows a round that the device may join, and lets it into another."""
    async with a_pair(privacy=PRIVACY, **RELAYED) as pair:
        await pair.step()
        phone, ledger, real = a_phone(pair, 0), pair.parties[0].ledger, await last(pair, 0)
        shown = replace(RoundSpec.decode(real.spec, pair.task), number=real.number + 5).encode()
        if why == "chance":
            monkeypatch.setattr("secemb_sdk.round.join.takes_part", lambda _task, text, _seed: text == shown)
        else:
            await contributed(phone)
        before = await ledger.counts(real.round_id)

        async def lie(_task_id: bytes) -> RoundRecord:
            return replace(real, spec=shown)

        monkeypatch.setattr(ledger, "current_round", lie)
        assert isinstance(await phone.contribute(), NotNow)
        after = await ledger.counts(real.round_id)
        assert after.admitted == before.admitted + 1  # it was let in, or this test would say nothing
        assert after.keys == before.keys


async def test_without_privacy_nobody_counts_how_often_a_device_takes_part() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        await contributed(phone)
        await contributed(phone)


class Choking(Marking):
    """Gets no finite gradient where one of the ratings is beyond measure."""

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        found = super().gradients(rows, dense, private, ratings)
        choked = bool((ratings.values > 1e30).any())
        return replace(found, loss=np.inf, rows=found.rows * np.inf) if choked else found


class Raising(Marking):
    """Fails in a way of its own at such a rating."""

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        if (ratings.values > 1e30).any():
            raise IndexError("an item without features")
        return super().gradients(rows, dense, private, ratings)


@pytest.mark.parametrize(("model", "trouble"), [(Choking, "NotFiniteLossError"), (Raising, "IndexError")])
async def test_a_rating_that_cannot_be_learned_from_does_not_silence_the_others(
    monkeypatch: pytest.MonkeyPatch, model: type[Marking], trouble: str
) -> None:
    async with a_pair(privacy=replace(PRIVACY, unit="record"), cohort=2) as pair:
        phones = loud(pair, 500)
        phones[0].model = model(500)
        phones[0].log({3: 3e38})
        with watched(monkeypatch, no_noise) as draws:
            await pair.step()
            outcomes = [await phone.contribute() for phone in phones]
            await pair.finish()
        total = draws.before[0] + draws.before[1]
        by_row = pair.task.ring.decode(total.rows)
        assert (
            CLIP - 3 < np.hypot(np.linalg.norm(by_row[0]), np.linalg.norm(pair.task.ring.decode(total.dense))) <= CLIP
        )
        assert not by_row[3].any()
        assert [one.trouble for one in outcomes if isinstance(one, Contributed)] == [trouble, None]  # the owner hears


class Unsolvable(Marking):
    """Gives every gradient, and fails where its private part is to be found."""

    def fit_private(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Floats:
        raise IndexError("an item without features")


async def test_a_private_part_that_cannot_be_found_does_not_silence_the_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rating can be the reason: if the update were suppressed, it would change more than its clip."""
    async with a_pair(privacy=replace(PRIVACY, unit="record"), cohort=2) as pair:
        phones = loud(pair, 500)
        phones[0].model = Unsolvable(500)
        with watched(monkeypatch, no_noise) as draws:
            await pair.step()
            outcomes = [await phone.contribute() for phone in phones]
            await pair.finish()
        total = draws.before[0] + draws.before[1]
        assert pair.task.ring.decode(total.rows)[0].any()
        assert [one.trouble for one in outcomes if isinstance(one, Contributed)] == ["IndexError", None]


# Chance.


def sampled(rate: str) -> Privacy:
    return replace(PRIVACY, sampling_rate=rate)


@pytest.mark.parametrize("changes", [{}, RELAYED], ids=["direct", "relayed"])
async def test_a_device_that_sits_a_round_out_does_not_join(changes: dict[str, Any]) -> None:
    async with a_pair(privacy=sampled("0.000001"), **changes) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        for _ in range(5):  # asking again does not toss again
            outcome = await phone.contribute()
            assert isinstance(outcome, NotNow)
            assert outcome.seconds == pytest.approx(pair.task.join_seconds, rel=0.5)
        assert {what for _, _, what in phone.seen.requests} == {pair.task.task_id.hex()}  # nothing but looks


@pytest.mark.parametrize("changes", [{}, RELAYED], ids=["direct", "relayed"])
async def test_who_sits_one_round_out_takes_part_in_another(changes: dict[str, Any]) -> None:
    assert any([await sits_one_out_and_comes_back(seed, changes) for seed in range(6)])


async def sits_one_out_and_comes_back(seed: int, changes: dict[str, Any]) -> bool:
    """Return whether the coin kept a device out of the first round: if so, it has been in another since."""
    async with a_pair(privacy=sampled("0.5"), cohort=2, **changes) as pair:
        await pair.step()
        phones = [a_phone(pair, number, random_bytes=SeededSource(2 * seed + number)) for number in (0, 1)]
        if not isinstance(await phones[0].contribute(), NotNow):
            return False
        outcomes = await until_contributed(phones)
        assert len(outcomes) == 2
        assert outcomes[0].receipt.round > 0
        return True


async def test_the_coin_falls_at_the_stated_rate_and_anew_in_each_round() -> None:
    task = a_task(privacy=sampled("0.3"))
    rounds = [RoundSpec(task=task, number=at, model_version=0, model_digest=bytes(32)).encode() for at in range(2)]
    seeds = [at.to_bytes(32, "little") for at in range(4000)]
    first, second = (np.array([takes_part(task, one, seed) for seed in seeds]) for one in rounds)
    spread = 6 * (0.3 * 0.7 / 4000) ** 0.5
    for tossed in (first, second):
        assert abs(tossed.mean() - 0.3) < spread
    assert abs((first & second).mean() - 0.09) < spread
    assert all(takes_part(a_task(privacy=sampled("1")), rounds[0], seed) for seed in seeds)
    assert all(takes_part(a_task(), rounds[0], seed) for seed in seeds)


@pytest.mark.parametrize("heeds", [True, False], ids=["leaves the round out", "tosses again"])
@pytest.mark.parametrize("changes", [{}, RELAYED], ids=["direct", "relayed"])
async def test_a_conflict_on_join_does_not_toss_the_coin_again(
    heeds: bool, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Server 0 answers 409, the device draws another session: were that another coin, it could be made to toss on."""
    if not heeds:
        monkeypatch.setattr("secemb_sdk.round.contribute.leave_out", lambda _exchange: iter(()))
    async with a_pair(privacy=sampled("1"), cohort=2, **changes) as pair:
        await pair.step()
        phone, sessions = a_phone(pair, 0), []

        def conflict(request: Request, answer: Answer) -> Answer:
            if request.path.endswith("/join"):
                sessions.append(request.body)
                return Answer(status=409) if len(sessions) == 1 else answer
            return answer

        phone.alter = conflict
        outcome = await phone.contribute()
        assert isinstance(outcome, NotNow if heeds else Contributed)
        for _ in range(3 if heeds else 0):  # nor later, nor after a restart
            assert isinstance(await phone.contribute(), NotNow)
        assert len(set(sessions)) == (1 if heeds else 2)
        pair.clock.now += 1000
        await pair.finish()
        await pair.step()
        assert (await last(pair, 0)).number == 1
        await contributed(phone)  # another round is another coin
        assert len(set(sessions)) == 2 if heeds else len(set(sessions)) == 3


async def test_without_sampling_a_conflict_on_join_costs_nothing() -> None:
    async with a_pair(privacy=PRIVACY, cohort=2) as pair:
        await pair.step()
        phone, seen = a_phone(pair, 0), []

        def conflict(request: Request, answer: Answer) -> Answer:
            seen.append(request.path.endswith("/join"))
            return Answer(status=409) if seen[-1] and sum(seen) == 1 else answer

        phone.alter = conflict
        await contributed(phone)
