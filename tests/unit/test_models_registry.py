"""A model is known by its name everywhere as soon as it is registered, and by that alone."""

import subprocess
import sys
from typing import get_args

import numpy as np
import pytest

from secemb_sdk.errors import ModelError, UnknownModelError
from secemb_sdk.models import MatrixFactorisation, registry
from secemb_sdk.models.registry import KnownFeatures, ModelKind, Shape
from secemb_tools.cli.simulate import Model
from secemb_tools.simulation.scenario import make_world

FEATURES = KnownFeatures(np.ones(3, np.uint8), lambda items: np.ones((items.size, 5), np.uint8))


class Popularity(MatrixFactorisation):
    """A model of an app: as matrix factorisation, with one number for a person's taste."""

    def __init__(self, *, dimension: int = 1, penalty: float = 0.5, scale: float = 0.1) -> None:
        super().__init__(dimension=dimension, penalty=penalty, scale=scale)


@pytest.fixture
def popularity(monkeypatch: pytest.MonkeyPatch) -> ModelKind:
    monkeypatch.setattr(registry, "_KINDS", dict(registry._KINDS))
    kind = ModelKind(
        name="popularity", title="Popularity", factory=f"{__name__}:Popularity", needs_torch=False, has_dense=False
    )
    registry.register(kind)
    return kind


def test_the_models_of_the_paper_are_registered() -> None:
    assert registry.names() == ("mf", "ncf", "fm", "deepfm", "sasrec", "caser", "lm")
    titles = [registry.find(name).title for name in registry.names()]
    assert titles == ["MF", "NCF", "FM", "DeepFM", "SASRec", "Caser", "Word LM"]


def test_the_help_of_the_commands_names_them_all_without_importing_them() -> None:
    (option,) = get_args(Model)[1:]
    assert f"One of {', '.join(registry.names())};" in option.help
    program = "import sys, secemb_tools.cli.main; sys.exit(bool({'numpy', 'secemb_sdk'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("name", registry.names())
def test_a_kind_says_the_sizes_of_the_models_that_it_makes(name: str) -> None:
    kind = registry.find(name)
    model = kind.make(dimension=4, penalty=0.2, dense_penalty=0.3, scale=0.1, features=FEATURES)
    sizes = Shape(row_width=model.row_width, dense_size=model.dense_size, private_size=model.private_size)
    assert kind.shape(dimension=4, user_features=3, item_features=5) == sizes
    assert kind.has_dense == (model.dense_size > 0)


@pytest.mark.parametrize("name", registry.names())
def test_a_kind_says_whether_its_model_needs_features(name: str) -> None:
    kind = registry.find(name)
    if kind.needs_features:
        with pytest.raises(ModelError, match="features"):
            kind.make()
    else:
        kind.make()


def test_a_kind_says_whether_its_model_needs_torch() -> None:
    program = """
import sys
sys.modules["torch"] = None  # what an import then finds is: nothing
from secemb_sdk.errors import TorchMissingError
from secemb_sdk.models import registry
for name in registry.names():
    try:
        registry.find(name).shape()
    except TorchMissingError:
        print(name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [name for name in registry.names() if registry.find(name).needs_torch]


def test_an_unknown_name_is_refused_with_those_that_exist() -> None:
    with pytest.raises(UnknownModelError, match="mf, ncf, fm, deepfm"):
        registry.find("mff")
    with pytest.raises(UnknownModelError):
        make_world(model="mff")


def test_a_registered_model_can_be_simulated(popularity: ModelKind) -> None:
    world = make_world(model=popularity.name, devices=4, cohort=2, items=20, capacity=5, dimension=3, rounds=1)
    assert world.task.row_width == world.model_of(0).row_width == 4


def test_a_name_is_given_once(popularity: ModelKind) -> None:
    registry.register(popularity)  # the same again changes nothing
    with pytest.raises(ModelError, match="different name"):
        registry.register(ModelKind(name="popularity", title="Other", factory="other:Other"))
