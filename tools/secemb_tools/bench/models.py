"""The models that devices train, in the sizes of the paper for each catalogue."""

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import numpy.typing as npt

from secemb_sdk.models import MatrixFactorisation, Model
from secemb_shared.randomness import Indices

FACTORISATION = "MF"
_WITH_TORCH = ("NCF", "FM", "DeepFM")


@dataclass(frozen=True, slots=True)
class Sides:
    """What a catalogue has beside its items: features of people and items, and the paper's width of NCF there."""

    user_features: int
    item_features: int
    ncf_dimension: int


SIDES = {
    "ML100K": Sides(84, 19, 16),
    "ML1M": Sides(30, 18, 16),
    "ML10M": Sides(0, 20, 24),
    "ML25M": Sides(0, 20, 24),
    "Yelp": Sides(0, 16, 20),
}


def torch_is_here() -> bool:
    """Tell whether the models that need torch can be made."""
    return find_spec("torch") is not None


def names() -> tuple[str, ...]:
    """Return the models that can be trained here."""
    return (FACTORISATION, *(_WITH_TORCH if torch_is_here() else ()))


def make(name: str, catalogue: str) -> Model:
    """Return a model as large as it is on a catalogue."""
    if name == FACTORISATION:
        return MatrixFactorisation()
    from secemb_sdk.models import torch as models  # here, because it may not be installed

    models.compute_alone()
    sides = SIDES[catalogue]
    person = (np.arange(sides.user_features) % 28 == 0).astype(np.uint8)

    def lookup(items: Indices) -> npt.NDArray[np.uint8]:
        chosen: npt.NDArray[np.bool_] = items[:, None] % (np.arange(sides.item_features) + 3) == 0
        return chosen.astype(np.uint8)

    if name == "NCF":
        return models.NeuralCollaborativeFiltering(dimension=sides.ncf_dimension)
    kind = {"FM": models.FactorisationMachine, "DeepFM": models.DeepFactorisationMachine}[name]
    return kind(user_features=person, item_features=lookup)
