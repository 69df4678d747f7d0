"""How much noise a server adds to its share of each kind of round: as much as the task promises, measured."""

from dataclasses import replace

import numpy as np
import pytest
from tests.simulation.pair import a_task
from tests.unit.noise_bytes import SeededSource

from secemb_party.evaluation import Share, blur
from secemb_shared.messages import RoundSpec
from secemb_shared.messages.privacy import RECORD, USER, BudgetLine, Privacy
from secemb_shared.messages.spec import EVALUATE, SURVEY, TRAIN

NUMBERS = 6000
PRIVACY = Privacy(
    unit=USER,
    delta="0.00001",
    train=BudgetLine(clip=1000, multiplier="3", epsilon="20"),
    survey=BudgetLine(clip=5 << 16, multiplier="1.5", epsilon="20"),
    evaluate=BudgetLine(clip=20 << 16, multiplier="0.75", epsilon="20"),
)
PROMISED = {TRAIN: 3 * 1000, SURVEY: 1.5 * (5 << 16), EVALUATE: 0.75 * (20 << 16)}


def drawn(kind: str, unit: str, part: str) -> np.ndarray:
    """Return the noise on a part of many shares of a round."""
    round_ = RoundSpec(
        task=a_task(privacy=replace(PRIVACY, unit=unit)), number=0, model_version=0, model_digest=bytes(32), kind=kind
    )
    found: list[np.ndarray] = []
    source = SeededSource(7)  # a variance that is measured is the same each time
    while sum(one.size for one in found) < NUMBERS:
        share = Share.empty(round_)
        blur(round_, share, source)
        numbers: np.ndarray = getattr(share, part)
        assert numbers.size
        found.append(numbers.reshape(-1).view(np.int32 if numbers.itemsize == 4 else np.int64))
    return np.concatenate(found).astype(np.float64)


@pytest.mark.parametrize("unit", [USER, RECORD])
@pytest.mark.parametrize(("kind", "part"), [(TRAIN, "rows"), (TRAIN, "dense"), (SURVEY, "sums"), (EVALUATE, "sums")])
def test_every_number_of_a_share_gets_the_promised_noise(kind: str, part: str, unit: str) -> None:
    found, parts = drawn(kind, unit, part), 2 if kind != TRAIN and unit == RECORD else 1
    promised = PROMISED[kind] ** 2 * parts
    assert abs(found.var() / promised - 1) < 6 * (2 / found.size) ** 0.5
    assert abs(found.mean()) < 6 * (promised / found.size) ** 0.5
