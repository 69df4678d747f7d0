"""Rounds whose sum is impossible: discarded on both sides or on none, whoever dies, and the model stays as it was."""

import numpy as np
import pytest
from tests.devices.scripted import Device, a_device
from tests.simulation.invariants import Invariants
from tests.simulation.pair import Pair, a_pair
from tests.simulation.round_states import last, results, step_to

from secemb_party.errors import PeerRefusedError
from secemb_party.ledger import RoundState
from secemb_party.metric_labels import short_id
from secemb_party.storage.publication import publication
from secemb_sdk.round.upload import survey
from secemb_server0.conductor import Finished, Open
from secemb_server0.plausibility import PartSize
from secemb_shared.messages.measures import EvaluationSums
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

pytestmark = pytest.mark.asyncio

DISCARDED, PUBLISHED = RoundState.DISCARDED, RoundState.PUBLISHED


async def devices_in(pair: Pair, number: int, *, wild: bool) -> list[Device]:
    """Let two devices do all that is asked of them, and a third that spoils the sum."""
    devices = [a_device(pair, power, name=bytes([number, power]) * 8) for power in range(2)]
    devices += [a_device(pair, 2, name=bytes([number, 2]) * 8, wild=True)] if wild else []
    for device in devices:
        await device.take_part()
    return devices


async def a_round(pair: Pair, number: int, *, wild: bool) -> list[Device]:
    while not isinstance(await pair.step(), Open):
        pass
    devices = await devices_in(pair, number, wild=wild)
    await pair.finish()
    return devices


async def states(pair: Pair) -> list[RoundState]:
    return [(await last(pair, role)).state for role in (0, 1)]


async def versions(pair: Pair) -> list[int]:
    found = [await pair.parties[role].ledger.published_version(pair.task.task_id) for role in (0, 1)]
    return [one.version for one in found if one is not None]


async def test_a_round_with_an_impossible_sum_is_discarded_on_both_sides_and_the_next_goes_on() -> None:
    async with a_pair() as pair:
        devices = await a_round(pair, 0, wild=True)
        assert await states(pair) == [DISCARDED, DISCARDED]
        reasons = {(await last(pair, role)).reason for role in (0, 1)}
        assert reasons == {"its sum is impossible: rows larger than these sessions can add up to"}
        assert await versions(pair) == [0, 0]
        for role in (0, 1):
            party = pair.parties[role]
            assert await party.trained() == 0  # the task has this round again
            assert await party.ledger.shares_by_kind(pair.task.task_id) == {TRAIN: 1}  # and the sum was opened
            text = party.metrics.render().decode()
            task = short_id(pair.task.task_id)
            assert f'secemb_rounds_total{{outcome="discarded",task="{task}"}} 1.0' in text
            assert f'secemb_round_sessions_total{{fate="discarded",task="{task}"}} 3.0' in text
        fullness = [
            value for name, _, value in pair.parties[0].metrics.figures() if name == "secemb_sum_fullness_ratio"
        ]
        assert max(fullness) > 1
        devices += await a_round(pair, 1, wild=False)
        assert await states(pair) == [PUBLISHED, PUBLISHED]
        assert await versions(pair) == [1, 1]
        await Invariants(pair, devices).check_end()
        told = await pair.parties[0].ended_rounds()
        assert (told.until, dict(told.aborted)) == (1, {0: next(iter(reasons))})


async def test_without_the_check_one_device_moves_the_model_as_far_as_it_wants(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(PartSize, "impossible", False)
    async with a_pair() as pair:
        await a_round(pair, 0, wild=True)
        assert await states(pair) == [PUBLISHED, PUBLISHED]
        assert np.abs(pair.parties[1].models.load(1).rows).max() > 2**25


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("after", [False, True])
async def test_a_server_may_die_at_every_single_write_of_a_discarded_round(role: int, after: bool) -> None:
    async with a_pair(keep_versions=50) as pair:
        devices: list[Device] = []
        for writes in range(12):
            number = 2 * writes
            while not isinstance(await pair.step(), Open):
                pass
            devices += await devices_in(pair, number, wild=True)
            await step_to(pair, RoundState.SEALING)
            pair.fuses[role].light(writes, after=after)
            while not (await last(pair, 0)).ended:
                await pair.step()
            pair.fuses[role].writes = None
            assert await states(pair) == [DISCARDED, DISCARDED]
            devices += await a_round(pair, number + 1, wild=False)
            assert await versions(pair) == [writes + 1] * 2
        await Invariants(pair, devices).check_end()


@pytest.mark.parametrize("what", ["request", "response"])
async def test_a_call_that_gets_lost_is_made_up_for(what: str) -> None:
    async with a_pair() as pair:
        await pair.step()
        devices = await devices_in(pair, 0, wild=True)
        await step_to(pair, RoundState.SHARED)
        for _ in range(2):  # the share, then the discard
            setattr(pair.line, f"lose_{what}s", 1)
            assert await pair.step() is None
            await pair.crash(0)
        await pair.finish()
        assert await states(pair) == [DISCARDED, DISCARDED]
        await Invariants(pair, devices).check_end()


async def test_server_1_discards_only_a_round_that_it_has_added_up() -> None:
    async with a_pair() as pair:
        peer = pair.server0.leader._peer
        await pair.step()
        await devices_in(pair, 0, wild=True)
        record = await last(pair, 0)
        for state in (RoundState.OPEN, RoundState.SEALING, RoundState.SEALED):
            await step_to(pair, state)
            with pytest.raises(PeerRefusedError, match="no sum to discard"):
                await peer.discard(record.round_id, "why not")
        await pair.finish()
        reason = (await last(pair, 1)).reason or ""
        await peer.discard(record.round_id, reason)  # again
        with pytest.raises(PeerRefusedError, match="no sum to discard"):
            await peer.discard(record.round_id, "another reason")
        with pytest.raises(PeerRefusedError, match="no sum to publish"):
            await peer.publish(
                record.round_id, publication(pair.parties[0].models.load(0), None, pair.parties[0].scratch)
            )
        await a_round(pair, 1, wild=False)
        with pytest.raises(PeerRefusedError, match="no sum to discard"):
            await peer.discard((await last(pair, 0)).round_id, "too good")


async def test_no_more_sums_are_opened_than_twice_the_rounds_of_the_task() -> None:
    """A server 0 that calls every sum impossible opens no more of them."""
    async with a_pair(rounds=2) as pair:
        sums = 0
        while not isinstance(await pair.step(), Finished):
            if pair.server0.leader.door.record is not None:
                await devices_in(pair, sums, wild=True)
                await pair.finish()
                sums += 1
        assert sums == 4
        assert [await pair.parties[role].trained() for role in (0, 1)] == [2, 2]
        assert await versions(pair) == [0, 0]


@pytest.mark.parametrize("kind", [SURVEY, EVALUATE])
async def test_a_lie_that_no_fleet_could_tell_is_discarded_and_no_figure_shows_it(kind: str) -> None:
    honest = (
        survey(np.ones(3, np.float32)) if kind == SURVEY else EvaluationSums(predictions=1.0, squared=1.0).numbers()
    )
    lie = honest.copy()
    lie[0] = 1e6  # items, or predictions
    async with a_pair(choose_kind=lambda number: kind if number < 2 else TRAIN, capacity=24) as pair:
        for number, numbers in enumerate(([honest, lie], [honest, honest])):
            await pair.step()
            for place, values in enumerate(numbers):
                device = a_device(pair, place, name=bytes([number, place]) * 8)
                await device.join()
                device.write_sum(values.tolist())
                await device.take_part()
            await pair.finish()
            assert await states(pair) == [PUBLISHED if number else DISCARDED] * 2
            assert (await last(pair, 1)).kind == kind
        assert [one["round"] for one in await results(pair)] == [1]


@pytest.mark.parametrize("kind", [SURVEY, EVALUATE])
async def test_without_the_limits_the_lie_would_be_published(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secemb_server0.completion.find_impossible", lambda *_: None)
    with pytest.raises(AssertionError):
        await test_a_lie_that_no_fleet_could_tell_is_discarded_and_no_figure_shows_it(kind)


async def survey_round(pair: Pair, number: int, *, lies: bool) -> tuple[str, RoundState]:
    """Let three devices take part in a round, one of which may lie if it is a survey; return what it was."""
    while not isinstance(await pair.step(), Open):
        pass
    kind = (await last(pair, 0)).kind
    for place in range(3):
        device = a_device(pair, place, name=bytes([number, place]) * 8)
        await device.join()
        if kind == SURVEY:
            values = survey(np.ones(3, np.float32))
            values[0] = 1e6 if lies and place == 0 else values[0]
            device.write_sum(values.tolist())
        await device.take_part()
    await pair.finish()
    return kind, (await last(pair, 0)).state


@pytest.mark.parametrize("tries", [3, 1000], ids=["training goes on", "it does not"])
async def test_a_lie_in_every_survey_does_not_keep_a_task_from_training(
    tries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secemb_server0.kinds.SURVEY_TRIES", tries)
    async with a_pair(choose_kind=lambda number: TRAIN if number else SURVEY, capacity=24, rounds=40) as pair:
        found = [await survey_round(pair, number, lies=True) for number in range(12)]
        asked = [number for number, (kind, _) in enumerate(found) if kind == SURVEY]
        assert asked == ([0, 1, 2, 8] if tries == 3 else list(range(12)))
        assert all(state is (DISCARDED if kind == SURVEY else PUBLISHED) for kind, state in found)
        if tries == 3:  # the survey is asked again, and once it is published no more
            found = [await survey_round(pair, number, lies=False) for number in range(12, 34)]
            assert [12 + at for at, one in enumerate(found) if one == (SURVEY, PUBLISHED)] == [16]
            assert [kind for kind, _ in found].count(SURVEY) == 1
