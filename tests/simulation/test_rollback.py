"""Going back to an older version of the model: on both servers or on none, whoever dies and whatever gets lost."""

import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from tests.devices.scripted import a_device
from tests.simulation.faults import CrashedError
from tests.simulation.machine import Rounds
from tests.simulation.pair import Pair, a_pair

from secemb_party.errors import PeerRefusedError, RollbackRefusedError
from secemb_party.ledger import Rollback
from secemb_party.operators import Order
from secemb_party.storage import Model, ModelFiles
from secemb_party.storage.model_files import state_name
from secemb_server0.conductor import Idle, Open, RollBack
from secemb_server0.peer import HttpPeer


async def run_rounds(pair: Pair, count: int) -> None:
    """Let two devices move the model in each of so many rounds."""
    for _ in range(count):
        while not isinstance(await pair.step(), Open | Idle):
            pass
        await take_part(pair)
        await pair.finish()


async def take_part(pair: Pair) -> None:
    record = await pair.parties[0].ledger.last_round(pair.task.task_id)
    assert record is not None
    for power in range(2):
        await a_device(pair, power, name=bytes([record.number, power]) * 8).take_part()


async def published(pair: Pair, role: int) -> Model:
    version = await pair.parties[role].ledger.published_version(pair.task.task_id)
    assert version is not None
    model = pair.parties[role].models.load(version.version)
    assert model.digest == version.digest
    return model


async def wish(pair: Pair, source: int, seen: int) -> Rollback:
    return await pair.server0.leader.rollbacks.request(source, seen=seen, order=Order("tests"))


async def assert_rolled_back(pair: Pair, source: Model, version: int) -> None:
    """Both servers have published the old numbers as this version, and rounds go on from there."""
    models = [await published(pair, role) for role in (0, 1)]
    assert models[0].digest == models[1].digest
    assert models[0].version == version
    assert np.array_equal(models[0].rows, source.rows)
    assert np.array_equal(models[0].dense, source.dense)
    assert pair.line.broken == []


async def assert_goes_on(pair: Pair) -> None:
    """The next round trains from the published numbers: two devices add 1 and 2, a mean of 1.5."""
    before = await published(pair, 1)
    await run_rounds(pair, 1)
    after = await published(pair, 1)
    assert after.version == before.version + 1
    assert after.rows[0].tolist() == pytest.approx([before.rows[0][0] - 1.5, before.rows[0][1] + 1.0])


@pytest.mark.asyncio
@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
async def test_an_old_version_is_published_anew_under_the_next_number(optimiser: str) -> None:
    async with a_pair(optimiser=optimiser) as pair:
        await run_rounds(pair, 2)
        old = pair.parties[0].models.load(1)
        await wish(pair, 1, 2)
        assert await pair.step() == RollBack(1)
        await assert_rolled_back(pair, old, 3)
        await run_rounds(pair, 1)
        assert (await published(pair, 0)).version == 4
        if optimiser == "sgd":
            await assert_goes_on(pair)


@pytest.mark.asyncio
@pytest.mark.parametrize("kept", [True, False])
async def test_the_optimiser_goes_on_from_its_state_at_that_version(kept: bool) -> None:
    """Adam takes the same step again from the same numbers, if it remembers the same; otherwise it starts over."""
    async with a_pair(optimiser="adam", schedule="cosine", rounds=10, guard="8", keep_versions=50) as pair:
        await run_rounds(pair, 5)
        models = pair.parties[0].models
        assert isinstance(models, ModelFiles)
        if not kept:
            (models.folder / state_name(1)).unlink()
        await wish(pair, 1, 5)
        assert await pair.step() == RollBack(1)
        state = models.load_state()
        assert state is not None
        assert (state.version, state.steps) == (6, 1 if kept else 0)
        await run_rounds(pair, 1)
        assert np.array_equal(models.load(7).rows, models.load(2).rows) is kept


@pytest.mark.asyncio
async def test_a_round_that_is_open_ends_first_and_loses_nobody() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 3)
        old = pair.parties[0].models.load(1)  # the oldest that is kept: the end of the round would remove it
        await pair.step()
        await take_part(pair)
        await wish(pair, 1, 3)
        await pair.finish()
        record = await pair.parties[1].ledger.last_round(pair.task.task_id)
        assert record is not None
        assert len(record.sealed_sessions or ()) == 2
        await assert_rolled_back(pair, old, 5)
        await assert_goes_on(pair)


@pytest.mark.asyncio
@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize("after", [False, True])
async def test_a_server_may_die_at_every_single_write_of_a_rollback(role: int, after: bool) -> None:
    async with a_pair() as pair:
        for writes in range(9):
            await run_rounds(pair, 1)
            newest = await published(pair, 0)
            old = pair.parties[0].models.load(newest.version - 1)
            await wish(pair, old.version, newest.version)
            pair.fuses[role].light(writes, after=after)
            for _ in range(2):
                await pair.step()
            await pair.finish()
            await assert_rolled_back(pair, old, newest.version + 1)
            await assert_goes_on(pair)


@pytest.mark.asyncio
@pytest.mark.parametrize("what", ["request", "response"])
async def test_a_call_that_gets_lost_is_made_up_for(what: str) -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 1)
        old = pair.parties[0].models.load(0)
        await wish(pair, 0, 1)
        setattr(pair.line, f"lose_{what}s", 1)
        assert await pair.step() is None
        assert (await published(pair, 0)).version == 1
        await pair.crash(0)
        await pair.finish()
        await assert_rolled_back(pair, old, 2)


@pytest.mark.asyncio
async def test_a_call_that_arrives_long_after_changes_nothing() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 1)
        await wish(pair, 0, 1)
        pair.line.hold_requests = 1
        assert await pair.step() is None
        await pair.finish()
        await run_rounds(pair, 2)
        before = await published(pair, 1)
        await pair.deliver_held()
        assert (await published(pair, 1)).digest == before.digest
        assert pair.line.broken == []


@pytest.mark.asyncio
async def test_the_same_wish_again_changes_nothing_and_another_one_is_refused() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 2)
        with pytest.raises(RollbackRefusedError, match="published in the meantime"):
            await wish(pair, 0, 1)
        first = await wish(pair, 1, 2)
        assert await wish(pair, 1, 2) == first
        with pytest.raises(RollbackRefusedError, match="another rollback is already pending"):
            await wish(pair, 0, 2)
        await pair.step()
        again = await wish(pair, 1, 2)
        assert (again.made, again.ended) == (3, True)
        assert (await published(pair, 0)).version == 3


@pytest.mark.asyncio
async def test_only_an_older_version_that_is_kept_can_be_wanted() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 6)
        for source in (6, 7):
            with pytest.raises(RollbackRefusedError, match="older than the published"):
                await wish(pair, source, 6)
        with pytest.raises(RollbackRefusedError, match="no longer kept"):
            await wish(pair, 1, 6)


@pytest.mark.asyncio
async def test_server_1_takes_no_other_numbers_than_it_has_published_before() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 2)
        peer = pair.server0.leader._peer
        assert isinstance(peer, HttpPeer)
        old = pair.parties[0].models.load(1)
        forged = replace(old, version=3, rows=old.rows + np.float32(1))
        with pytest.raises(PeerRefusedError, match="differ from those published here"):
            await peer.roll_back(forged, 1)
        for version, source in ((3, 0), (3, 7), (4, 1), (2, 1)):
            with pytest.raises(PeerRefusedError):
                await peer.roll_back(replace(old, version=version), source)
        await pair.step()  # a round is open
        with pytest.raises(PeerRefusedError, match="a round has not ended here"):
            await peer.roll_back(replace(old, version=3), 1)
        assert (await published(pair, 1)).version == 2


def remove_file(pair: Pair, version: int) -> None:
    """Remove server 0's file of a version."""
    models = pair.parties[0].models
    assert isinstance(models, ModelFiles)
    (models.folder / f"v{version:06d}.safetensors").unlink()


@pytest.mark.asyncio
async def test_what_server_1_refuses_is_given_up_and_rounds_go_on() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 2)
        other = replace(pair.parties[0].models.load(1), rows=np.full((24, 2), 7, np.float32))
        remove_file(pair, 1)
        pair.parties[0].models.save(other)
        await wish(pair, 1, 2)
        await pair.step()
        (given_up,) = await pair.parties[0].ledger.rollbacks(pair.task.task_id)
        assert given_up.made is None
        assert "differ from those" in (given_up.reason or "")
        assert isinstance(await pair.step(), Open)
        await take_part(pair)
        await pair.finish()
        assert (await published(pair, 1)).version == 3


@pytest.mark.asyncio
async def test_a_version_that_is_gone_by_then_is_given_up() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 2)
        await wish(pair, 1, 2)
        remove_file(pair, 1)
        await pair.step()
        (given_up,) = await pair.parties[0].ledger.rollbacks(pair.task.task_id)
        assert "no longer kept" in (given_up.reason or "")
        assert isinstance(await pair.step(), Open)


SOAK = bool(os.environ.get("SOAK_TESTS"))
EXAMPLES = 1000 if SOAK else 15


class RoundsAndRollbacks(Rounds):
    """Whatever happens to two servers, and an operator who goes back now and then."""

    @rule(back=st.integers(1, 3))
    def roll_back(self, back: int) -> None:
        self.runner.run(self.go_back(back))

    async def go_back(self, back: int) -> None:
        newest = await self.pair.parties[0].ledger.published_version(self.pair.task.task_id)
        assert newest is not None
        try:
            await wish(self.pair, newest.version - back, newest.version)
        except RollbackRefusedError:
            return
        except CrashedError:
            await self.pair.crash(0)


@pytest.mark.timeout(0 if SOAK else 900)
def test_the_servers_never_disagree_about_a_rollback() -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        RoundsAndRollbacks,
        settings=settings(max_examples=EXAMPLES, stateful_step_count=25, deadline=None, suppress_health_check=checks),
    )
