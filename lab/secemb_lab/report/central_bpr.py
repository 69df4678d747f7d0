"""Central Bayesian personalised ranking with access to all data: the accuracy of training without privacy."""

import numpy as np
import torch
from torch.nn.functional import softplus

from secemb_sdk.models import Floats
from secemb_sdk.models.torch import compute_alone
from secemb_shared.randomness import Indices
from secemb_tools.datasets import RatingSet

DIMENSION, RATE, PENALTY, SCALE = 64, 0.005, 0.01, 0.1
STEPS = 100  # in an epoch, unless its batches would be larger than this
LARGEST_BATCH, SMALLEST_BATCH = 8192, 256


class CentralBpr:
    """Matrix factorisation with the loss BPR: minibatches, Adam, one uniform negative for each interaction."""

    def __init__(self, train: RatingSet, *, epochs: int, seed: int) -> None:
        compute_alone()
        random = torch.Generator().manual_seed(seed)
        sizes = (train.person_count, train.item_count)
        self._people, self._items = (
            (SCALE * torch.randn(size, DIMENSION, generator=random)).requires_grad_() for size in sizes
        )
        self._biases = torch.zeros(train.item_count, requires_grad=True)
        optimiser = torch.optim.Adam([self._people, self._items, self._biases], lr=RATE)
        people, items = torch.from_numpy(train.people), torch.from_numpy(train.items)
        batch = max(SMALLEST_BATCH, min(LARGEST_BATCH, people.numel() // STEPS))
        for _ in range(epochs):
            order = torch.randperm(people.numel(), generator=random)
            for some in torch.split(order, batch):
                strangers = torch.randint(train.item_count, (some.numel(),), generator=random)
                optimiser.zero_grad()
                self._loss(people[some], items[some], strangers).backward()  # type: ignore[no-untyped-call]
                optimiser.step()

    def scores_of(self, people: Indices) -> Floats:
        """Return a score of each item for these people."""
        with torch.no_grad():
            found: Floats = (self._people[torch.from_numpy(people)] @ self._items.T + self._biases).numpy()
        return found.astype(np.float32, copy=False)

    def _loss(self, people: torch.Tensor, chosen: torch.Tensor, strangers: torch.Tensor) -> torch.Tensor:
        own, liked, other = self._people[people], self._items[chosen], self._items[strangers]
        margin = (own * (liked - other)).sum(dim=1) + self._biases[chosen] - self._biases[strangers]
        size = own.square().sum() + liked.square().sum() + other.square().sum()
        return (softplus(-margin).sum() + PENALTY * size) / people.numel()
