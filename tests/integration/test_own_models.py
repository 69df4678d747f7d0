"""Own models in a simulation: by the name of their class or made already, private as any other."""

from pathlib import Path
from typing import Any

import pytest
from tests.devices.own_model import Additive

from secemb_sdk.errors import UnknownModelError
from secemb_sdk.models import registry
from secemb_tools import simulate
from secemb_tools.errors import RunError, ScenarioError
from secemb_tools.simulation.run import Run

SMALL: dict[str, Any] = {"devices": 30, "cohort": 10, "rounds": 12, "items": 150, "evaluate_every": 4, "patience": 0}
NAME = "tests.devices.own_model:Additive"


def test_a_class_is_simulated_by_its_name_and_no_bit_is_lost() -> None:
    run = simulate(model=NAME, **SMALL, rate=0.1, compare_plain=True)
    assert run.same_as_plain is True
    assert run.model.rows.shape == (150, 1)
    errors = [row.rmse for row in run.rows if row.rmse is not None]
    assert errors[-1] < errors[0]
    assert NAME not in registry.names()


def test_a_model_that_is_made_already_is_the_same_as_its_class() -> None:
    by_name, made = (simulate(model=model, **SMALL) for model in (NAME, Additive(middle=3.0, penalty=0.04)))
    other = simulate(model=Additive(middle=1.0), **SMALL)
    assert by_name.rows[0].digest != other.rows[0].digest
    assert made.scenario.model == by_name.scenario.model == NAME


def test_settings_reach_a_class_that_takes_them() -> None:
    one, other = (simulate(model=NAME, **SMALL, penalty=penalty) for penalty in (0.0, 5.0))
    assert one.rows[-1].digest != other.rows[-1].digest


def test_an_own_model_recommends_too() -> None:
    run = simulate(model=NAME, **SMALL)
    assert len(run.recommend(user="3", k=4)) == 4
    assert len(run.recommend(likes=["1", "2"], k=4)) == 4


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("no.such.module:Class", "cannot be imported"),
        ("tests.devices.own_model:None_", "cannot be imported"),
        ("tests.devices.own_model:NOT_A_MODEL", "is not a model"),
        ("json:JSONDecoder", "is not a model"),
        (":", "cannot be imported"),
        ("svd", "choose one of mf, ncf, fm, deepfm, sasrec, caser, lm, or give a class as package.module:Class"),
    ],
)
def test_what_is_not_a_model_is_refused(name: str, words: str) -> None:
    with pytest.raises(UnknownModelError, match=words):
        simulate(model=name, **SMALL)


def test_a_model_that_is_made_already_stays_in_this_process() -> None:
    with pytest.raises(ScenarioError, match="processes=1"):
        simulate(model=Additive(), **SMALL, processes=2)


def test_a_kept_run_whose_class_is_not_to_be_found_is_not_called_unreadable(
    tmp_path: Path,
) -> None:
    simulate(model=NAME, **SMALL, runs=tmp_path, name="one")
    described = tmp_path / "one" / "run.json"
    described.write_text(described.read_text().replace(NAME, "not_here:Model"))
    with pytest.raises(RunError, match=r"not_here:Model.*cannot be imported.*PYTHONPATH"):
        Run.load(tmp_path / "one")
