"""What a device of the SDK does in a round, with whatever taste, clock or policy: it looks like every other."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.devices.phone import Marking, Phone, a_phone, contributed, until_contributed
from tests.simulation.pair import Pair, a_pair

from secemb_sdk.home.vault import Vault
from secemb_sdk.models import Floats, Gradients, MatrixFactorisation, Ratings
from secemb_sdk.models.update import fit_private
from secemb_sdk.round.contribute import NotNow
from secemb_sdk.steps import Answer, Request
from secemb_shared.messages import Sizes
from secemb_shared.messages.spec import EVALUATE, SURVEY

pytestmark = pytest.mark.asyncio


class Remembering(Marking):
    """Remembers what it was trained on."""

    def gradients(self, rows: Floats, dense: Floats, private: Floats, ratings: Ratings) -> Gradients:
        self.lessons = [
            *getattr(self, "lessons", []),
            dict(zip(ratings.items.tolist(), ratings.values.tolist(), strict=True)),
        ]
        return super().gradients(rows, dense, private, ratings)


def with_taste(pair: Pair, number: int, ratings: dict[int, float], **fields: Any) -> Phone:
    phone = Phone(pair, pair.folder / f"phone{number}", Remembering(2**number), **fields)
    phone.log(ratings)
    return phone


# Tastes.


async def test_devices_with_any_taste_look_alike() -> None:
    tastes: list[dict[int, float]] = [
        {},
        {3: 1.0},
        dict.fromkeys(range(24), 2.0),
        {100 + item: 3.0 for item in range(9)},
    ]
    async with a_pair() as pair:
        await pair.step()
        phones = [with_taste(pair, number, taste) for number, taste in enumerate(tastes)]
        receipts = [await contributed(phone) for phone in phones]
        lengths = [
            sorted((server, what, len(body)) for (_, server, what), (body,) in phone.seen.bodies.items())
            for phone in phones
        ]
        assert all(each == lengths[0] for each in lengths)
        assert all(phone.seen.requests == phones[0].seen.requests for phone in phones)
        assert {(one.sent, one.received, one.slots) for one in receipts} == {
            (receipts[0].sent, receipts[0].received, 12)
        }
        assert [one.truncated for one in receipts] == [0, 0, 20, 9]


async def test_of_too_many_ratings_another_part_is_drawn_every_round() -> None:
    async with a_pair(min_cohort=2) as pair:
        phones = [with_taste(pair, number, dict.fromkeys(range(24), 1.0)) for number in (0, 1)]
        for _ in range(6):
            await until_contributed(phones)
            await pair.finish()
        lessons = phones[0].model.lessons  # type: ignore[attr-defined]
        assert all(len(lesson) == pair.task.capacity for lesson in lessons)
        assert len({frozenset(lesson) for lesson in lessons}) > 1


async def test_the_last_of_several_ratings_counts() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = with_taste(pair, 0, {3: 1.0, 4: 2.0})
        phone.log({3: 5.0})
        await contributed(phone)
        assert phone.model.lessons == [{3: 5.0, 4: 2.0}]  # type: ignore[attr-defined]


async def test_unknown_items_are_left_out_and_counted() -> None:
    async with a_pair() as pair:
        await pair.step()
        phone = with_taste(pair, 0, {3: 1.0, 24: 2.0, 10**9: 3.0})
        assert (await contributed(phone)).truncated == 2
        assert phone.model.lessons == [{3: 1.0}]  # type: ignore[attr-defined]


async def test_what_is_held_out_is_never_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Vault, "hold_out_key", bytes(32))  # by chance a device would hold out next to nothing
    async with a_pair() as pair:
        taste = {item: float(item) for item in range(20)}
        phones = [with_taste(pair, number, taste, options={"hold_out": 0.5}) for number in (0, 1)]
        context = phones[0].open()
        held = {item for item in taste if item in context.held_out()}
        context.vault.close()
        for _ in range(5):
            await until_contributed(phones)
            await pair.finish()
        trained = set().union(*phones[0].model.lessons)  # type: ignore[attr-defined]
        assert 2 < len(held) < 18
        assert trained
        assert not trained & held


# Clocks.


async def test_a_wall_clock_that_jumps_only_dates_receipts() -> None:
    times: Iterator[float] = iter([1.7e9, 0.0, 4.1e9, -6e10, 1e20])
    async with a_pair() as pair:
        phones = [a_phone(pair, number) for number in (0, 1)]
        phones[0].wall_clock = lambda: next(times)
        for _ in range(5):
            await until_contributed(phones)
            await pair.finish()
        context = phones[0].open()
        assert [one.date[:4] for one in context.vault.receipts()] == ["2023", "1970", "2099", "0068", "unkn"]


@pytest.mark.parametrize("count", [0, 1, 24])
@pytest.mark.parametrize("late", [False, True])
async def test_the_time_between_keys_and_update_does_not_depend_on_the_taste(count: int, late: bool) -> None:
    """Nor can a server use the pace up by answering late, and then see how long the device trains."""
    refused: list[str] = []

    def alter(request: Request, answer: Answer) -> Answer:
        if late and request.path.endswith("/keys") and request.server == 1 and not refused:
            refused.append("once")
            return Answer(status=503, headers={"retry-after": "5"})
        return answer

    async with a_pair(upload_seconds=60, dense_size=0) as pair:
        await pair.step()
        phone = with_taste(pair, 0, dict.fromkeys(range(count), 1.0), pace=3.0)
        phone.options = {"model": MatrixFactorisation(dimension=1)}
        phone.alter, phone.work_seconds = alter, 0.002 * count  # more items take longer
        await contributed(phone)
        times = dict(phone.sent_at)
        assert times["update"] - times["keys"] == pytest.approx(3.0)
        if not late:
            assert times["keys"] - times["join"] == pytest.approx(0.3)


async def test_the_servers_clock_ends_a_call_before_the_round_does() -> None:
    """Server 0 says by its Date header that three seconds are left; the device's own clocks show something else."""
    async with a_pair() as pair:
        await pair.step()
        began = pair.clock.now

        def alter(request: Request, answer: Answer) -> Answer:
            if request.path.endswith("/join"):
                return replace(answer, headers={**answer.headers, "date": "Thu, 01 Jan 1970 00:17:07 GMT"})  # 1027
            return Answer(status=503) if request.path.endswith("/keys") else answer

        phone = a_phone(pair, 0, alter=alter, wall_clock=lambda: 9e9, seconds=1000.0)
        assert isinstance(await phone.contribute(), NotNow)
        assert pair.clock.now - began <= 3.0


# Receipts.


async def test_a_receipt_counts_every_body() -> None:
    async with a_pair(dense_size=2) as pair:
        await pair.step()
        phone = a_phone(pair, 0)
        receipt = await contributed(phone)
        sizes = Sizes.of(pair.task)
        wish = len('{"session": ""}') + 32
        assert receipt.sent == (sizes.keys + sizes.update[0] + wish, sizes.keys + sizes.update[1])
        assert all(received > sizes.answer for received in receipt.received)
        assert (receipt.round, receipt.kind, receipt.model_version, receipt.complete) == (0, "train", 0, True)
        assert receipt.model_digest == (await pair.parties[0].ledger.versions(pair.task.task_id))[0].digest.hex()


async def test_a_receipt_counts_what_was_sent_in_vain() -> None:
    async with a_pair() as pair:
        await pair.step()
        calls = 0

        def alter(request: Request, answer: Answer) -> Answer:
            nonlocal calls
            calls += request.path.endswith("/keys")
            return Answer(status=503) if request.path.endswith("/keys") and calls <= 2 else answer

        plain, twice = a_phone(pair, 0), a_phone(pair, 1, alter=alter)
        usual, more = await contributed(plain), await contributed(twice)
        keys = Sizes.of(pair.task).keys
        assert [more.sent[role] - usual.sent[role] for role in (0, 1)] == [keys, keys]


# Surveys and evaluations.


async def test_a_survey_adds_up_how_many_items_devices_have() -> None:
    async with a_pair(choose_kind=lambda _: SURVEY) as pair:
        await pair.step()
        tastes: list[dict[int, float]] = [{}, {3: 1.0}, dict.fromkeys(range(24), 2.0), {5: 1.0, 99: 1.0}]
        receipts = [await contributed(with_taste(pair, number, taste)) for number, taste in enumerate(tastes)]
        await pair.finish()
        assert await result(pair) == {
            "round": 0,
            "mean_items": 26 / 4,
            "suggested_capacity": 24,  # 27 keep nine tenths of 26, which is more than there are items
            "mean_rating": pytest.approx((1 + 24 * 2 + 1) / 26, abs=1e-4),
            "rating_spread": pytest.approx(np.std([1.0] * 2 + [2.0] * 24), abs=1e-4),
        }
        assert {one.kind for one in receipts} == {"survey"}
        assert len({one.sent for one in receipts}) == 1


async def test_an_evaluation_adds_up_errors_on_what_was_held_out() -> None:
    kinds = [*["train"] * 3, EVALUATE]
    async with a_pair(
        items=200,
        row_width=3,
        dense_size=0,
        capacity=120,  # a sixth of it for what is held out, so that all twenty have room if chance holds them all out
        tables=4,
        bins=60,
        fraction_bits=16,
        bound=2**24,
        row_rate="0.05",
        initial_scale="0.5",
        choose_kind=lambda number: kinds[number],
    ) as pair:
        model = MatrixFactorisation(dimension=2)
        taste = {item: float(1 + item % 5) for item in range(0, 40, 2)}
        phones = [with_taste(pair, number, taste, options={"model": model, "hold_out": 0.4}) for number in range(3)]
        for kind in kinds:
            receipts = [one.receipt for one in await until_contributed(phones)]
            assert {one.kind for one in receipts} == {kind}
            await pair.finish()
        found, table = await result(pair), pair.parties[0].models.load(3).rows
        errors, held = [], 0
        for phone in phones:
            context = phone.open()
            private, hold_out = context.vault.private(), context.held_out()
            assert private is not None
            items = np.array([item for item in taste if item in hold_out], dtype=np.int64)
            held += items.size
            others = np.array([item for item in taste if item not in hold_out], dtype=np.int64)
            to_fit = Ratings(others, np.array([taste[int(item)] for item in others], np.float32))
            solved = fit_private(model, private, table[others], np.zeros(0, np.float32), to_fit)
            scores = model.scores(table[items], np.zeros(0, np.float32), solved.values, items)
            errors += (scores - [taste[int(item)] for item in items]).tolist()
        assert held > 3
        assert found["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))), abs=1e-3)
        assert found["mae"] == pytest.approx(np.mean(np.abs(errors)), abs=1e-3)
        assert 0 <= found["ndcg"] <= found["hit_rate"] <= 1


async def test_a_device_without_ratings_evaluates_nothing_and_takes_part() -> None:
    async with a_pair(choose_kind=lambda _: EVALUATE) as pair:
        await pair.step()
        phones = [with_taste(pair, number, {}, options={"hold_out": 0.5}) for number in range(2)]
        receipts = [await contributed(phone) for phone in phones]
        await pair.finish()
        found = await result(pair)
        assert (found.pop("sums"), found.pop("window")) == ([0.0] * 22, {"rounds": [0]})
        assert found == {"round": 0}
        assert {one.kind for one in receipts} == {"evaluate"}


async def result(pair: Pair) -> dict[str, Any]:
    events = await pair.parties[0].ledger.events(limit=100)
    (found,) = [event.data for event in events if event.kind == "result"]
    return dict(found)
