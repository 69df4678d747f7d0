"""Rounds that go wrong in one known way each, and how they end."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from tests.devices.scripted import KEYS, UPDATE, WORDS, a_device, flipped
from tests.integration.databases import keys_body
from tests.simulation.pair import TICKET_KEY, a_pair
from tests.simulation.round_states import assert_published, filled, last, results, self_reports

from secemb_party.errors import PeerRefusedError
from secemb_party.evaluation import Evaluation, KeysMessage
from secemb_party.ledger import RoundState
from secemb_party.metric_labels import short_id
from secemb_party.tickets import CLOCK_TOLERANCE, issue_ticket
from secemb_sdk.round.upload import survey
from secemb_server0.conductor import Abort, Advance, Finished, Open, Wait
from secemb_shared.messages import public_keys_digest
from secemb_shared.messages.measures import EvaluationSums
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

pytestmark = pytest.mark.asyncio


async def test_a_good_round_is_published_on_both_sides() -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        await pair.finish()
        await assert_published(pair, devices)
        model = pair.parties[1].models.load(1)
        assert model.rows[0].tolist() == pytest.approx([-(1 + 2 + 4) / 3, 1.0])


async def test_a_full_cohort_is_sealed_before_its_deadline() -> None:
    async with a_pair() as pair:
        devices = await filled(pair, pair.task.cohort)
        before = pair.clock.now
        await pair.finish()
        assert pair.clock.now == before
        await assert_published(pair, devices)


async def test_a_round_with_too_few_sessions_is_aborted_on_both_sides_and_the_next_one_opens() -> None:
    async with a_pair() as pair:
        await filled(pair, 1)
        await a_device(pair, 4).fall_silent()  # and is lost
        pair.clock.now += pair.task.upload_seconds
        assert isinstance(await pair.step(), Abort)
        assert [(await last(pair, role)).state for role in (0, 1)] == [RoundState.ABORTED] * 2
        assert await pair.step() == Open(1)
        assert [(await last(pair, role)).state for role in (0, 1)] == [RoundState.OPEN] * 2
        devices = [a_device(pair, number) for number in (5, 6)]
        for device in devices:
            await device.take_part()
        await pair.finish()
        assert (await last(pair, 1)).sealed_sessions == tuple(sorted(device.name for device in devices))


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("what", [KEYS, UPDATE])
async def test_a_session_that_only_one_server_has_is_left_out(role: int, what: str) -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        half = a_device(pair, 7)
        await half.join()
        for message in (KEYS, UPDATE):
            await half.put(role, message)
            if message != what:
                await half.put(1 - role, message)
        await pair.finish()
        await assert_published(pair, devices)


@pytest.mark.parametrize("first", [0, 1])
async def test_a_session_between_the_two_servers_is_waited_for(first: int) -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        late = a_device(pair, 7)
        await late.join()
        for role in (0, 1):
            await late.put(role, KEYS)
        await late.put(first, UPDATE)
        pair.clock.now += pair.task.join_seconds
        assert isinstance(await pair.step(), Wait)
        await late.put(1 - first, UPDATE)
        assert await pair.step() == Advance(RoundState.OPEN)
        await pair.finish()
        await assert_published(pair, [*devices, late])


@pytest.mark.parametrize("what", [KEYS, UPDATE, WORDS])
async def test_a_session_that_does_not_pass_its_checks_is_rejected(what: str) -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        await a_device(pair, 7, twist=what).take_part()
        await pair.finish()
        await assert_published(pair, devices)
        for party in pair.parties.values():
            rejected = f'secemb_sessions_rejected_total{{task="{short_id(pair.task.task_id)}"}} 1.0'
            assert rejected in party.metrics.render().decode()


async def test_without_the_fingerprint_one_session_would_write_to_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check switched off: the sum is then not that of the honest devices."""

    honest = Evaluation.accept

    def trusting(self: Evaluation, batch: Sequence[KeysMessage]) -> list[tuple[bytes, bytes]]:
        return [
            (answer, public_keys_digest(keys.body))
            for keys, (answer, _) in zip(batch, honest(self, batch), strict=True)
        ]

    monkeypatch.setattr(Evaluation, "accept", trusting)
    async with a_pair() as pair:
        devices = await filled(pair)
        await a_device(pair, 7, twist=WORDS).take_part()
        await pair.finish()
        with pytest.raises(AssertionError):
            await assert_published(pair, devices)


async def test_a_round_that_only_looks_full_to_server_0_is_aborted_while_it_is_sealed() -> None:
    async with a_pair() as pair:
        await filled(pair, 1)
        await a_device(pair, 7, twist=UPDATE).take_part()
        await pair.finish()
        assert [(await last(pair, role)).state for role in (0, 1)] == [RoundState.ABORTED] * 2
        assert [(await last(pair, role)).sealed_sessions for role in (0, 1)] == [None, None]


async def test_bodies_of_aborted_rounds_are_forgotten_as_well() -> None:
    async with a_pair() as pair:
        for number in range(6):
            assert isinstance(await pair.step(), Open)
            await a_device(pair, number).take_part()  # too few
            await a_device(pair, 9, name=bytes([number]) * 16).fall_silent()  # and is lost
            await pair.finish()
        for role in (0, 1):
            ledger = pair.parties[role].ledger
            rounds = await ledger.rounds(pair.task.task_id)
            assert [one.state for one in rounds] == [RoundState.ABORTED] * 6
            held = {one.round_id: await ledger.session_summaries(one.round_id) for one in rounds}
            names = [(name, one.session_id) for name, found in held.items() for one in found if one.complete]
            kept = [await keys_body(ledger, *name) is not None for name in names]
            assert sum(kept) == 3


async def test_forgetting_bodies_changes_no_answer() -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        await pair.finish()
        for role in (0, 1):
            assert await pair.parties[role].ledger.forget_bodies() == 6
            await pair.crash(role)
        for device in devices:
            for role in (0, 1):
                for what in (KEYS, UPDATE):
                    answer = await device.put(role, what)  # compares it with the first answer
                    assert answer is not None
                    assert answer.status_code == 200


@pytest.mark.parametrize("role", [0, 1])
async def test_who_lost_the_receipt_gets_it_again_after_the_ticket_has_expired(role: int) -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        missing = a_device(pair, 7)
        await missing.join()
        for server in (0, 1):
            await missing.put(server, KEYS)
        await pair.finish()
        pair.clock.now += pair.task.upload_seconds + CLOCK_TOLERANCE + 1
        again = await devices[0].put(role, UPDATE)  # compares it with the first answer
        assert again is not None
        assert again.status_code == 200
        body = devices[0].body(role, UPDATE)
        changed = await devices[0].put(role, UPDATE, flipped(body, len(body) - 1))
        late = await missing.put(role, UPDATE)
        assert changed is not None
        assert late is not None
        assert (changed.status_code, late.status_code) == (409, 403)


async def test_rounds_long_past_are_closed_and_not_broken() -> None:
    async with a_pair() as pair:
        devices = await filled(pair)
        await pair.finish()
        past = await last(pair, 1)
        for number in range(6):
            assert isinstance(await pair.step(), Open)
            for power in range(2):
                await a_device(pair, power, name=bytes([number, power]) * 8).take_part()
            await pair.finish()
        with pytest.raises(PeerRefusedError, match="410"):
            await pair.server0.leader._peer.share(past.round_id, past.list_digest or b"", 1)
        devices[0].ticket = issue_ticket(TICKET_KEY, past.round_id, devices[0].name, 2**40)  # its own has expired
        for role in (0, 1):
            for what in (KEYS, UPDATE):
                answer = await devices[0].put(role, what, devices[0].body(role, what))
                assert answer is not None
                assert answer.status_code == 410
        assert pair.line.broken == []


async def test_a_survey_says_how_many_items_devices_have() -> None:
    async with a_pair(choose_kind=lambda number: SURVEY if number == 0 else TRAIN) as pair:
        devices = [survey(np.full(count, rating, np.float32)) for count, rating in ((3, 4.0), (5, 3.0), (10, 2.0))]
        await self_reports(pair, [one.tolist() for one in devices])
        # 8 keep 3 + 5 + 8 of the 18, 16 keep all: nine tenths, 16.2, are a tenth of the way from 16 to 18
        ratings = [4.0] * 3 + [3.0] * 5 + [2.0] * 10
        expected = {"round": 0, "mean_items": 6.0, "suggested_capacity": 9.0}
        about = {"mean_rating": pytest.approx(np.mean(ratings)), "rating_spread": pytest.approx(np.std(ratings))}
        assert await results(pair) == [{**expected, **about}]
        await pair.step()
        assert (await last(pair, 1)).kind == TRAIN


async def test_an_evaluation_says_how_good_the_model_is_for_the_fleet() -> None:
    async with a_pair(choose_kind=lambda _: EVALUATE, capacity=24) as pair:
        devices = [
            EvaluationSums(predictions=4.0, squared=4.0, absolute=2.0, rankings=1.0, hits=1.0, ndcg=0.5),
            EvaluationSums(predictions=4.0, squared=14.0, absolute=6.0, rankings=1.0),
        ]
        await self_reports(pair, [one.numbers().tolist() for one in devices])
        (found,) = await results(pair)
        assert found["rmse"] == math.sqrt(18 / 8)
        assert [found[name] for name in ("round", "mae", "hit_rate", "ndcg")] == [0, 1.0, 0.5, 0.25]
        assert EvaluationSums.read(found["sums"]).squared == 18.0
        assert found["window"] == {"rounds": [0]} | {
            name: figure for name, figure in found.items() if name not in ("round", "sums", "window")
        }


async def test_the_figures_of_the_fleet_come_from_a_window_of_evaluations() -> None:
    async with a_pair(choose_kind=lambda number: SURVEY if number == 1 else EVALUATE, rounds=20, capacity=24) as pair:
        squares = [100.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        for number, squared in enumerate(squares):
            if number == 1:
                await self_reports(pair, [survey(np.ones(3, np.float32)).tolist()] * 2)
            one = EvaluationSums(predictions=2.0, squared=squared, rankings=1.0)
            await self_reports(pair, [one.numbers().tolist()] * 2)
        found = (await results(pair))[-1]
        assert found["round"] == 6
        assert found["window"]["rounds"] == [2, 3, 4, 5, 6]
        assert found["window"]["predictions"] == 5 * 2 * 2.0
        assert found["window"]["rmse"] == pytest.approx(math.sqrt(15 / 10))
        assert found["rmse"] == pytest.approx(math.sqrt(5 / 2))
        shown, task = pair.parties[0].metrics.render().decode(), short_id(pair.task.task_id)
        assert f'secemb_quality{{figure="predictions",task="{task}"}} 20.0' in shown


async def test_the_task_ends_after_its_last_round() -> None:
    async with a_pair(rounds=1) as pair:
        devices = await filled(pair)
        await pair.finish()
        await assert_published(pair, devices)
        assert await pair.step() == Finished()
        answer = await a_device(pair, 5).join()
        assert answer is not None
        assert answer.status_code == 410
