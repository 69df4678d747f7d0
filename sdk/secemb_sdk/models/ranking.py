"""Losses for feedback that has no ratings: items that the owner has chosen (1) among strangers (0).

    bpr       Σ over the chosen of the mean over the strangers of log(1 + exp(s − c))     (Rendle et al. 2009)
    softmax   Σ over the chosen of −log(exp(c) / (exp(c) + Σ over the strangers of exp(s)))

c and s are the scores of a chosen item and of a stranger. A device that lacks either has nothing to learn.
"""

from collections.abc import Callable

import numpy as np

from secemb_sdk.models.interface import Floats
from secemb_sdk.models.ridge import solve_ridge
from secemb_shared.messages.spec import BPR, SOFTMAX

LENGTH = 4.0  # norm of a person's vector: without ratings there is no scale, and this one spreads scores enough
STRANGERS = 4.0  # total weight of all strangers in the fit, per chosen item

Loss = Callable[[Floats, Floats], tuple[float, Floats]]  # scores and values → loss, derivative by each score


def bpr(scores: Floats, values: Floats) -> tuple[float, Floats]:
    """Return the loss of pairs and its derivative by each score."""
    chosen, slopes = values > 0, np.zeros_like(scores)
    differences = scores[~chosen][None, :] - scores[chosen][:, None]
    if differences.size == 0:
        return 0.0, slopes
    each = np.float32(1 / differences.shape[1]) / (1 + np.exp(-differences))
    slopes[chosen], slopes[~chosen] = -each.sum(axis=1), each.sum(axis=0)
    return float(np.logaddexp(0, differences).sum() / differences.shape[1]), slopes


def softmax(scores: Floats, values: Floats) -> tuple[float, Floats]:
    """Return the loss of each chosen item among all strangers, and its derivative by each score."""
    chosen, slopes = values > 0, np.zeros_like(scores)
    if chosen.all() or not chosen.any():
        return 0.0, slopes
    own, other = scores[chosen], scores[~chosen]
    rest = np.logaddexp.reduce(other)
    total = np.logaddexp(own, rest)  # of each chosen item together with the strangers
    slopes[chosen] = np.exp(own - total) - 1
    slopes[~chosen] = np.exp(other[None, :] - total[:, None]).sum(axis=0)
    return float((total - own).sum()), slopes


LOSSES: dict[str, Loss] = {BPR: bpr, SOFTMAX: softmax}


def fit_vector(inputs: Floats, values: Floats) -> Floats:
    """Return a person's vector of fixed norm, in the direction that best separates the chosen from the strangers."""
    weights = np.sqrt(weigh(values))
    found = solve_ridge(inputs * weights[:, None], values * weights, np.ones(inputs.shape[1], np.float32))
    length = np.linalg.norm(found)
    return found * np.float32(LENGTH / length) if length > 0 else found


def weigh(values: Floats) -> Floats:
    """Return the weight of each item in the fit; the total weight of strangers does not depend on their number."""
    chosen = values > 0
    count = int(np.count_nonzero(chosen))
    strangers = max(1, values.size - count)
    weights: Floats = np.where(chosen, 1.0, STRANGERS * count / strangers).astype(np.float32)
    return weights
