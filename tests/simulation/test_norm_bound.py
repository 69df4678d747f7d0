"""Rounds of a task with a norm bound: long updates are rejected, and sums stay exact over what counts."""

from dataclasses import replace

import numpy as np
import pytest
from tests.devices.scripted import UPDATE, WORDS, Device, a_device
from tests.simulation.pair import Pair, a_pair
from tests.simulation.round_states import assert_published, filled, last, self_reports, step_to

from secemb_party.compute.threads import ThreadCompute
from secemb_party.ledger import RoundState
from secemb_sdk.round.session import DeviceSession
from secemb_shared import norm
from secemb_shared.messages.spec import SUM_SIZES, SURVEY

pytestmark = pytest.mark.asyncio

BOUND = 64  # in steps; the devices here add at most 2^4 in two rows and the dense part


def rejected(pair: Pair) -> list[str]:
    """Return how many sessions each server has rejected, as its metrics say it."""
    lines = (party.metrics.render().decode().splitlines() for _, party in sorted(pair.parties.items()))
    return [
        next(line.split()[1] for line in some if line.startswith("secemb_sessions_rejected_total")) for some in lines
    ]


async def a_long_one(pair: Pair, times: float) -> Device:
    """Let a device take part whose update is so many times as long as the bound, with the proof of a larger one."""
    device = a_device(pair, 9)
    rows, dense = np.zeros((pair.task.items, pair.task.row_width)), np.zeros(pair.task.dense_size)
    rows[device.items()[0], 0] = round(times * BOUND)
    device.update = lambda: (rows, dense)  # type: ignore[method-assign]
    await device.join()
    honest = DeviceSession.write

    def write(self: DeviceSession, *given: object) -> object:
        """Keep the words of the long update, with the share of a proof that fits the lengths of the message."""
        shape = self.round.task.norm_shape
        assert shape is not None
        with pytest.MonkeyPatch.context() as patch:
            longer = replace(shape, norm_bound=norm.NormShape.largest_bound(shape.bits))

            def forged(given: norm.NormShape, *rest: object, **named: object) -> norm.Proof:
                made = norm.prove(longer, *rest, **named)  # type: ignore[arg-type]
                assert made is not None
                return norm.Proof(made.public, made.share[: shape.share_bytes])

            patch.setattr("secemb_sdk.round.session.prove", forged)
            return honest(self, *given)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeviceSession, "write", write)
        await device.take_part()
    return device


async def test_honest_updates_count_and_the_sum_is_exact() -> None:
    async with a_pair(norm_bound=BOUND) as pair:
        devices = await filled(pair, 4)
        await pair.finish()
        await assert_published(pair, devices)
        assert rejected(pair) == ["0.0"] * 2


@pytest.mark.parametrize("times", [3, 10, 15])
async def test_an_update_that_is_too_long_is_rejected_on_both_servers(times: float) -> None:
    async with a_pair(norm_bound=BOUND) as pair:
        devices = await filled(pair)
        await a_long_one(pair, times)
        await pair.finish()
        await assert_published(pair, devices)
        assert rejected(pair) == ["1.0"] * 2


async def test_without_the_check_the_long_update_would_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secemb_party.norm_check.agree", lambda *_: True)
    async with a_pair(norm_bound=BOUND) as pair:
        devices = await filled(pair)
        long = await a_long_one(pair, 10)
        await pair.finish()
        assert long.name in ((await last(pair, 0)).sealed_sessions or ())
        with pytest.raises(AssertionError):
            await assert_published(pair, devices)


async def test_a_device_that_would_be_rejected_sends_zeros() -> None:
    """With the task's own bound no proof can be made; the device notices that before it sends anything."""
    async with a_pair(norm_bound=BOUND) as pair:
        devices = await filled(pair)
        quiet = a_device(pair, 9)
        rows, dense = np.full((pair.task.items, pair.task.row_width), 100.0), np.zeros(pair.task.dense_size)
        quiet.update = lambda: (rows, dense)  # type: ignore[method-assign]
        await quiet.take_part()
        quiet.update = lambda: (0 * rows, dense)  # type: ignore[method-assign]
        await pair.finish()
        await assert_published(pair, [*devices, quiet])


@pytest.mark.parametrize("twist", [UPDATE, WORDS])
async def test_sessions_are_rejected_for_different_reasons_in_one_round(twist: str) -> None:
    async with a_pair(norm_bound=BOUND, cohort=5) as pair:
        devices = await filled(pair)
        await a_device(pair, 7, twist=twist).take_part()
        await a_long_one(pair, 10)
        await pair.finish()
        await assert_published(pair, devices)
        assert rejected(pair) == ["2.0"] * 2


async def test_sessions_that_were_added_early_and_do_not_count_are_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ThreadCompute, "batch", 2)
    async with a_pair(norm_bound=BOUND, cohort=6) as pair:
        devices = await filled(pair)
        await a_long_one(pair, 10)
        half = a_device(pair, 8)
        await half.join()
        for role, what in ((0, "keys"), (1, "keys"), (0, "update")):
            await half.put(role, what)
        pair.clock.now += pair.task.upload_seconds
        await pair.finish()
        await assert_published(pair, devices)


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("state", [RoundState.SEALING, RoundState.SEALED, RoundState.SHARED])
async def test_a_crash_changes_nothing_about_which_sessions_count(role: int, state: RoundState) -> None:
    async with a_pair(norm_bound=BOUND) as pair:
        devices = await filled(pair)
        await a_long_one(pair, 10)
        await step_to(pair, state)
        await pair.crash(role)
        await pair.finish()
        await assert_published(pair, devices)


async def test_too_few_sessions_that_pass_abort_the_round() -> None:
    async with a_pair(norm_bound=BOUND) as pair:
        await filled(pair, 1)
        await a_long_one(pair, 10)
        await pair.finish()
        assert [(await last(pair, role)).state for role in (0, 1)] == [RoundState.ABORTED] * 2


async def test_rounds_without_updates_need_no_proof() -> None:
    async with a_pair(norm_bound=BOUND, choose_kind=lambda _number: SURVEY) as pair:
        await self_reports(pair, [[1.0] * SUM_SIZES[SURVEY]] * 3)
