"""The forged sessions of `make attack`: rejected by both servers, and counted once a check is switched off."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest
from tests.devices.scripted import KEYS, UPDATE, Device, a_device
from tests.simulation.pair import Pair, a_pair
from tests.simulation.round_states import assert_published, filled, last

from secemb_lab.attack.forged_session import Forger
from secemb_lab.attack.forgeries import FORGERIES
from secemb_party.evaluation import Evaluation, KeysMessage
from secemb_party.metric_labels import short_id
from secemb_shared.messages import public_keys_digest

pytestmark = pytest.mark.asyncio

BOUND = 64
OF_KEYS = ("random words", "equal seeds", "wrong cs")
OF_LENGTH = (
    "ring extremes",
    "wrap-around",
    *(f"{times} x bound, {how} number{s}" for times in (3, 10) for how, s in (("one", ""), ("all", "s"))),
)


@asynccontextmanager
async def a_round(forgery: str, *, norm_bound: int) -> AsyncIterator[tuple[Pair, list[Device], Device]]:
    """Run a round of three honest devices and a forged session."""
    async with a_pair(norm_bound=norm_bound) as pair:
        devices = await filled(pair)
        hostile = a_device(pair, 9)
        await hostile.join()
        forger, keys, update = FORGERIES[forgery].make(
            lambda: Forger.begin(hostile.spec, hostile.name, np.arange(3, dtype=np.int64))
        )
        assert forger.session_id == hostile.name
        hostile.bodies = {KEYS: keys, UPDATE: update}
        await hostile.take_part()
        await pair.finish()
        yield pair, devices, hostile


@pytest.mark.parametrize("forgery", OF_KEYS + OF_LENGTH)
async def test_a_forged_session_is_rejected(forgery: str) -> None:
    async with a_round(forgery, norm_bound=BOUND) as (pair, devices, _):
        await assert_published(pair, devices)
        for party in pair.parties.values():
            shown = party.metrics.render().decode()
            assert f'secemb_sessions_rejected_total{{task="{short_id(party.task.task_id)}"}} 1.0' in shown


async def counts(forgery: str, *, norm_bound: int) -> bool:
    """Tell whether a forged session is in the sum."""
    async with a_round(forgery, norm_bound=norm_bound) as (pair, _, hostile):
        return hostile.name in ((await last(pair, 0)).sealed_sessions or ())


@pytest.mark.parametrize("forgery", OF_KEYS)
async def test_without_fingerprints_forged_keys_would_count(forgery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Evaluation.accept

    def trusting(self: Evaluation, batch: Sequence[KeysMessage]) -> list[tuple[bytes, bytes]]:
        return [
            (answer, public_keys_digest(keys.body))
            for keys, (answer, _) in zip(batch, honest(self, batch), strict=True)
        ]

    assert not await counts(forgery, norm_bound=0)
    monkeypatch.setattr(Evaluation, "accept", trusting)
    assert await counts(forgery, norm_bound=0)


@pytest.mark.parametrize("forgery", OF_LENGTH)
async def test_without_the_proof_a_long_update_would_count(forgery: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secemb_party.norm_check.agree", lambda *_: True)
    assert await counts(forgery, norm_bound=BOUND)


@pytest.mark.parametrize("forgery", ["zeros", "promotion within the bound"])
async def test_what_follows_the_rules_counts(forgery: str) -> None:
    assert await counts(forgery, norm_bound=BOUND)
