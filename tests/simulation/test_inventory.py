"""A data directory that is older or newer than the ledger is named, with the fix, on either server."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.simulation.pair import Pair, a_pair
from tests.simulation.test_rollback import run_rounds, take_part, wish

from secemb_party.errors import LedgerConflictError, StateError
from secemb_party.inventory import AGE, MODEL, OPTIMISER, SHARE
from secemb_party.storage.model_files import state_name
from secemb_server0.conductor import Open
from secemb_server0.reconstruct import fresh_state

pytestmark = pytest.mark.asyncio

Damage = Callable[[Pair, Path], None]


def files(pair: Pair, folder: Path) -> Path:
    return folder / "models" / pair.task.task_id.hex()


def lose_model(pair: Pair, folder: Path) -> None:
    (files(pair, folder) / "v000003.safetensors").unlink()


def cut_model(pair: Pair, folder: Path) -> None:
    path = files(pair, folder) / "v000003.safetensors"
    path.write_bytes(path.read_bytes()[:-1])


def swap_model(pair: Pair, folder: Path) -> None:
    """Put other numbers in its place, in a file that is right by itself."""
    store = pair.parties[0].models
    store.replace(replace(store.load(2), version=3))
    if folder.name == "server1":
        path = files(pair, folder) / "v000003.safetensors"
        path.write_bytes((files(pair, pair.folder / "server0") / "v000003.safetensors").read_bytes())


def add_model(pair: Pair, folder: Path) -> None:
    store = pair.parties[int(folder.name[-1])].models
    store.save(replace(store.load(3), version=4))


def lose_state(pair: Pair, folder: Path) -> None:
    for path in files(pair, folder).glob("*.optimiser.safetensors"):
        path.unlink()


def cut_state(pair: Pair, folder: Path) -> None:
    (files(pair, folder) / state_name(3)).write_bytes(b"{}")


def older_state(pair: Pair, folder: Path) -> None:
    pair.parties[0].models.save_state(fresh_state(pair.task, 2))


def early_share(pair: Pair, folder: Path) -> None:
    pair_shares = folder / "shares"
    pair_shares.mkdir(exist_ok=True)
    (pair_shares / f"{'ab' * 32}.{'cd' * 32}.share").write_bytes(b"a share")


@pytest.mark.parametrize(
    ("role", "damage", "check", "words"),
    [
        *((role, lose_model, MODEL, "model version 3 is missing") for role in (0, 1)),
        *((role, cut_model, MODEL, "the file of model version 3 is corrupted") for role in (0, 1)),
        *((role, swap_model, MODEL, "the file of model version 3 does not match the ledger") for role in (0, 1)),
        *((role, add_model, AGE, "has model version 4, but the ledger ends at version 3") for role in (0, 1)),
        *((role, early_share, AGE, "the share of a round that the ledger has not sealed") for role in (0, 1)),
        (0, lose_state, OPTIMISER, "state is missing, but model version 3 needs one"),
        (0, cut_state, OPTIMISER, "state is corrupted"),
        (0, older_state, OPTIMISER, "state is for version 2, but the model is at version 3"),
    ],
)
async def test_what_does_not_fit_is_named_at_the_start_and_the_server_is_not_ready(
    role: int, damage: Damage, check: str, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 3)
        assert all(one.ok for one in await pair.parties[role].readiness())
        pair.damaged = True
        damage(pair, pair.folder / f"server{role}")
        await pair.crash(role)
        (found,) = await pair.parties[role].inventory.faults()
        assert (found.check, words in found.text) == (check, True), found
        wrong = [one for one in await pair.parties[role].readiness() if not one.ok]
        assert [one.check for one in wrong] == [check]
        assert found.fix in wrong[0].hint
        assert "data_dir does not match the ledger" in caplog.text


@pytest.mark.parametrize("role", [0, 1])
async def test_a_missing_share_of_a_round_that_is_shared_is_named(role: int) -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 1)
        while not isinstance(await pair.step(), Open):
            pass
        await take_part(pair)
        ledger = pair.parties[role].ledger
        pair.clock.now += pair.task.join_seconds  # nobody else joins
        for _ in range(20):
            await pair.step()
            record = await ledger.current_round(pair.task.task_id)
            assert record is not None
            if record.share_digest is not None:
                break
        pair.damaged = True
        shutil.rmtree(pair.folder / f"server{role}" / "shares")
        await pair.crash(role)
        assert [one.check for one in await pair.parties[role].inventory.faults()] == [SHARE]


async def test_a_running_server_notices_that_its_model_is_gone_and_that_it_is_back() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 3)
        party, path = pair.parties[1], files(pair, pair.folder / "server1") / "v000003.safetensors"
        kept = path.read_bytes()
        path.unlink()
        assert [one.check for one in await party.readiness() if not one.ok] == [MODEL]
        path.write_bytes(kept)
        pair.clock.now += 60
        assert all(one.ok for one in await party.readiness())


async def test_a_new_ledger_does_not_start_over_with_an_old_model() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 1)
        await pair.parties[1].ledger.close()
        for path in (pair.folder / "server1").glob("ledger.db*"):
            path.unlink()
        with pytest.raises(LedgerConflictError, match="data_dir has version 1 of the model"):
            await pair.start_server(1)


@pytest.mark.parametrize("optimiser", ["adam", "momentum", "sgd"])
async def test_no_step_is_taken_without_the_optimisers_state_until_it_starts_over(optimiser: str) -> None:
    async with a_pair(optimiser=optimiser) as pair:
        await run_rounds(pair, 2)
        (files(pair, pair.folder / "server0") / state_name(2)).unlink()
        with pytest.raises(StateError, match="reset-optimiser"):
            await run_rounds(pair, 1)
        store = pair.parties[0].models
        assert store.versions()[-1] == 2
        store.save_state(fresh_state(pair.task, 2))
        await pair.finish()
        state = store.load_state()
        assert state is not None
        assert (state.version, state.steps) == (3, 1)


async def test_a_rollback_leaves_an_optimiser_that_fits() -> None:
    async with a_pair() as pair:
        await run_rounds(pair, 3)
        await wish(pair, 1, 3)
        await run_rounds(pair, 1)
        for role in (0, 1):
            await pair.crash(role)
