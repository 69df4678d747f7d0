"""The control: a model without embeddings. What does not beat it has not shown that its vectors learn anything."""

import numpy as np
import numpy.typing as npt

from secemb_shared.randomness import Indices
from secemb_tools.datasets import Split

LOWEST, HIGHEST = 1.0, 5.0  # of the scale that predictions are cut to
RIDGE = 3.0  # ratings' worth of belief that a bias is zero
SWEEPS = 30

Doubles = npt.NDArray[np.float64]


def bias_only_rmse(data: Split) -> float:
    """Return the error of global mean + bias of the person + bias of the item, fitted by ridge regression."""
    train, test = data.train, data.test
    mean = float(train.values.mean())
    rest = train.values.astype(np.float64) - mean
    by_person, by_item = np.zeros(train.person_count), np.zeros(train.item_count)
    for _ in range(SWEEPS):  # each of the two is the exact minimum given the other
        by_item = _biases(train.items, rest - by_person[train.people], train.item_count)
        by_person = _biases(train.people, rest - by_item[train.items], train.person_count)
    scores = np.clip(mean + by_person[test.people] + by_item[test.items], LOWEST, HIGHEST)
    return float(np.sqrt(np.mean((scores - test.values) ** 2)))


def _biases(groups: Indices, values: Doubles, count: int) -> Doubles:
    sums = np.bincount(groups, weights=values, minlength=count)
    biases: Doubles = sums / (np.bincount(groups, minlength=count) + RIDGE)
    return biases
