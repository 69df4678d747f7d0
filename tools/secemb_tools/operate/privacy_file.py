"""What an operator promises, written down in a TOML file and turned into a task's privacy settings.

unit = "user"            # or "record"
delta = 1e-6             # well below one over the number of people
rate = 0.05              # optional: devices take part by chance; see docs/privacy.md before counting on it

[train]
clip = 1.0               # largest length of an update, rows and dense part together
dense_clip = 0.5         # optional: of the dense part alone; clip is then of the rows
epsilon = 8.0            # what all rounds may cost together
multiplier = 2.0         # optional: without it, as much noise as the task's rounds need

[evaluate]               # optional, as is [survey]: without it there are no such rounds
clip = 20.0              # largest length of what a device says about itself
epsilon = 2.0
rounds = 10              # instead of a multiplier
"""

import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from secemb_party.accountant import solve_multiplier
from secemb_shared.messages.privacy import BudgetLine, Privacy
from secemb_shared.ring import Ring
from secemb_shared.secure_sum import SUM_RING
from secemb_tools.operate.refusal import OperationError

Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Line(BaseModel):
    """The budget of one kind of round."""

    model_config = ConfigDict(extra="forbid")

    clip: Positive
    epsilon: Positive
    multiplier: Positive | None = None
    rounds: Annotated[int, Field(ge=1)] | None = None


class Training(Line):
    """The budget of training."""

    dense_clip: Positive | None = None


class Promise(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid")

    unit: Literal["user", "record"]
    delta: Annotated[float, Field(gt=0, lt=1)]
    rate: Annotated[float, Field(gt=0, le=1)] | None = None
    train: Training
    survey: Line | None = None
    evaluate: Line | None = None


def read_privacy(path: Path, *, rounds: int, ring: Ring) -> Privacy:
    """Return the privacy settings in a file, for a task of so many rounds in this ring."""
    promise = _read(path)
    train = promise.train
    return Privacy(
        unit=promise.unit,
        delta=_text(promise.delta),
        rate=_text(promise.rate) if promise.rate is not None else "",
        train=_line(promise, train, ring, rounds),
        dense_clip=_steps(train.dense_clip, ring) if train.dense_clip is not None else 0,
        survey=_line(promise, promise.survey, SUM_RING, 1) if promise.survey is not None else None,
        evaluate=_line(promise, promise.evaluate, SUM_RING, rounds) if promise.evaluate is not None else None,
    )


def _read(path: Path) -> Promise:
    try:
        return Promise.model_validate(tomllib.loads(path.read_text()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OperationError(f"{path} is not TOML: {error}") from None
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, one['loc']))}: {one['msg'].lower()}" for one in error.errors()]
        raise OperationError(f"{path}: {'; '.join(faults)}. docs/privacy.md shows a whole file") from None


def _line(promise: Promise, line: Line, ring: Ring, rounds: int) -> BudgetLine:
    multiplier = line.multiplier
    if multiplier is None:
        multiplier = float(
            solve_multiplier(budget=line.epsilon, delta=promise.delta, rounds=line.rounds or rounds, rate=promise.rate)
        )
    return BudgetLine(clip=_steps(line.clip, ring), multiplier=_text(multiplier), epsilon=_text(line.epsilon))


def _steps(clip: float, ring: Ring) -> int:
    """Return a length in whole steps, rounded down: what is promised is not exceeded."""
    steps = int(clip * 2.0**ring.fraction_bits)
    if steps < 1:
        raise OperationError(f"a clip of {clip:g} is shorter than the ring's smallest step; use more --fraction-bits")
    return steps


def _text(number: float) -> str:
    """Return a number as specifications write it: no exponent, no trailing zeros, twelve digits behind the point."""
    text = f"{Decimal(repr(number)):.12f}"
    return text.rstrip("0").rstrip(".")
