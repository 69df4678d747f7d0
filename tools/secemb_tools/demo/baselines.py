"""What models without vectors score on the ratings that the fleet's last evaluation measured."""

from dataclasses import dataclass

import numpy as np

from secemb_shared.messages.spec import EVALUATE
from secemb_tools.datasets import Split
from secemb_tools.simulation.baseline import bias_only_rmse
from secemb_tools.simulation.final import split_of
from secemb_tools.simulation.scenario import ScenarioWorld


@dataclass(frozen=True, slots=True, kw_only=True)
class Baselines:
    """Errors of two models that see everybody's ratings in one place."""

    global_mean: float  # predicts the mean rating
    biases: float  # predicts mean + bias of the person + bias of the item
    ratings: int  # held-out ratings that are predicted


def baselines_of(world: ScenarioWorld) -> Baselines | None:
    """Return the baselines' errors, or None where no round has evaluated."""
    numbers = [one for one in range(world.scenario.all_rounds) if world.schedule.kind_of(one) == EVALUATE]
    if not numbers:
        return None
    data = held_out_of(world, numbers[-1])
    if not data.test.values.size:
        return None
    errors = data.test.values - data.train.values.mean()
    return Baselines(
        global_mean=float(np.sqrt(np.mean(errors**2))), biases=bias_only_rmse(data), ratings=data.test.values.size
    )


def held_out_of(world: ScenarioWorld, number: int) -> Split:
    """Return what everybody trains on, and what those who take part in this evaluation hold out."""
    data = split_of(world)
    measured = np.isin(data.test.people, world.schedule.people_of(number))
    return Split(train=data.train, test=data.test.only(np.flatnonzero(measured)))
