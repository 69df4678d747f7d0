"""Privacy settings from a TOML file, and the cost of rounds with noise."""

import tomllib
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from typing_extensions import TypedDict

from secemb_party.accountant import (
    Terms,
    epsilon,
    epsilon_by_divergence,
    epsilon_known,
    rounds_within,
    solve_multiplier,
)
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.ring import Ring
from secemb_shared.secure_sum import SUM_RING
from secemb_tools.errors import OperationError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Budget(BaseModel):
    """The budget of one kind of round."""

    model_config = ConfigDict(extra="forbid")

    clip: Positive
    epsilon: Positive
    multiplier: Positive | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None


class TrainingBudget(Budget):
    """The budget of training."""

    dense_clip: Positive | None = None


class PrivacyFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")

    unit: Literal["user", "record"]
    delta: Annotated[float, Field(gt=0, lt=1)]
    sampling_rate: Annotated[float, Field(gt=0, le=1)] | None = None
    train: TrainingBudget
    survey: Budget | None = None
    evaluate: Budget | None = None


def read_privacy(path: Path, *, rounds: int, ring: Ring) -> Privacy:
    """Return the privacy settings in a file, for a task with this many rounds in this ring."""
    file = read_file(path)
    train = file.train
    return Privacy(
        unit=file.unit,
        delta=_text(file.delta),
        sampling_rate=_text(file.sampling_rate) if file.sampling_rate is not None else "",
        train=_line(file, train, ring, rounds),
        dense_clip=_steps(train.dense_clip, ring) if train.dense_clip is not None else 0,
        survey=_line(file, file.survey, SUM_RING, 1) if file.survey is not None else None,
        evaluate=_line(file, file.evaluate, SUM_RING, rounds) if file.evaluate is not None else None,
    )


def read_file(path: Path) -> PrivacyFile:
    """Parse and validate a file."""
    try:
        return PrivacyFile.model_validate(tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OperationError(f"{path} is not TOML: {error}") from None
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in error.errors()]
        raise OperationError(f"{path}: {'; '.join(faults)}. docs/privacy.md has an example") from None


def _line(file: PrivacyFile, line: Budget, ring: Ring, rounds: int) -> BudgetLine:
    multiplier = line.multiplier
    if multiplier is None:
        multiplier = float(
            solve_multiplier(
                budget=line.epsilon,
                delta=file.delta,
                rounds=line.rounds or rounds,
                sampling_rate=file.sampling_rate,
            )
        )
    return BudgetLine(clip=_steps(line.clip, ring), multiplier=_text(multiplier), epsilon=_text(line.epsilon))


def _steps(clip: float, ring: Ring) -> int:
    """Return a clip in whole steps of the ring, rounded down so that the given clip is not exceeded."""
    steps = int(clip * 2.0**ring.fraction_bits)
    if steps < 1:
        raise OperationError(f"a clip of {clip:g} is below the ring's smallest step; use more --fraction-bits")
    return steps


def _text(number: float) -> str:
    """Return a number as specifications write it: no exponent, no trailing zeros, at most twelve decimals."""
    text = f"{Decimal(repr(number)):.12f}"
    return text.rstrip("0").rstrip(".")


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivacyInput:
    """A number of rounds, with a given noise or a given budget."""

    rounds: int
    multiplier: float | None
    budget: float | None
    delta: float
    sampling_rate: float | None


class Projection(TypedDict):
    """The privacy cost of rounds."""

    multiplier: float
    delta: float
    sampling_rate: float | None
    rounds: int
    epsilon: float
    epsilon_known: float
    epsilon_by_divergence: float
    budget: float | None
    rounds_within_budget: int | None


class Spending(TypedDict):
    """The budget that a server has spent, for one kind of round."""

    kind: str
    shares: int
    epsilon: float
    epsilon_known: float
    delta: float
    budget: float
    projected: float
    projected_known: float
    remaining: int
    exhausted: bool


def project_costs(given: PrivacyInput) -> Projection:
    """Return ε after all rounds, computed in three ways, and how many rounds the budget allows."""
    multiplier = given.multiplier
    if multiplier is None:
        solved = solve_multiplier(
            budget=given.budget or 0.0, delta=given.delta, rounds=given.rounds, sampling_rate=given.sampling_rate
        )
        multiplier = float(solved)
    terms = Terms(multiplier=multiplier, delta=given.delta, sampling_rate=given.sampling_rate)
    return {
        "multiplier": multiplier,
        "delta": given.delta,
        "sampling_rate": given.sampling_rate,
        "rounds": given.rounds,
        "epsilon": epsilon(terms, given.rounds),
        "epsilon_known": epsilon_known(terms, given.rounds),
        "epsilon_by_divergence": epsilon_by_divergence(terms, given.rounds),
        "budget": given.budget,
        "rounds_within_budget": None if given.budget is None else rounds_within(terms, given.budget),
    }
