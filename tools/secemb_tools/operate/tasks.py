"""Builds tasks from an operator's options, and checks them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from secemb_party.budget import lines_of
from secemb_party.storage import check_scale
from secemb_server0.reconstruct import make_optimiser
from secemb_shared.catalogue import digest_of
from secemb_shared.layout import DEFAULT_LOSS, Geometry
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.messages.spec import SQUARED
from secemb_shared.ring import Ring
from secemb_tools.errors import OperationError
from secemb_tools.operate.privacy import read_privacy
from secemb_tools.specification import (
    GUARD,
    Density,
    as_decimal,
    build_task,
    decay_of,
    default_bias_rate,
    default_pulls,
    default_rounds,
    direct_geometry,
)

DEFAULT_ROUNDS = 100  # if nothing is known about the fleet
LAYOUTS = ("binned", "direct")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of `secemb task create`, in user-facing units."""

    name: str
    items: int
    width: int
    capacity: int
    clip: float
    cohort: int
    min_cohort: int
    dense_size: int = 0
    layout: str = "binned"
    placement_loss: float = DEFAULT_LOSS
    ring_bits: int = 32
    fraction_bits: int = 16
    row_bits: int = 32
    people: int | None = None  # expected in the fleet; decays and rounds follow from it
    ratings: int | None = None  # expected in the fleet; the decay of vectors follows from it
    rounds: int | None = None
    join_seconds: int = 60
    upload_seconds: int = 600
    loss: str = SQUARED
    optimiser: str = "adam"
    guard: float = GUARD
    schedule: str = "cosine"
    row_rate: float = 0.02
    bias_rate: float | None = None
    dense_rate: float = 0.001
    row_decay: float | None = None
    bias_decay: float | None = None
    seed: int = 0
    initial_scale: float = 0.05
    centre: float | None = None  # of the ratings; None: the middle of the scale, or 0
    spread: float | None = None  # of the ratings; None: a quarter of the scale, or 1
    lowest: float | None = None  # the ends of the scale
    highest: float | None = None
    norm_bound: float | None = None  # norm of a whole update; None: the default, 0: devices prove nothing
    identity0: str = ""  # server 0's identity; without both identities the task can have no successor
    relay_key: str = ""  # server 1's relay identity; without it devices call both servers
    privacy: Path | None = None  # a file as in docs/privacy.md; without it there is no noise
    catalogue: bytes | None = None  # the file with the ids and titles of the items


def make_task(options: TaskOptions) -> TaskSpec:
    """Return the task; an unsafe combination is refused with the reason."""
    ring, training = Ring(bits=options.ring_bits, fraction_bits=options.fraction_bits), _training(options)
    task = build_task(
        name=options.name,
        items=options.items,
        row_width=options.width,
        dense_size=options.dense_size,
        capacity=options.capacity,
        geometry=_geometry(options),
        placement_loss=options.placement_loss,
        ring_bits=options.ring_bits,
        fraction_bits=options.fraction_bits,
        row_bits=options.row_bits,
        bound=ring.units(options.clip),
        norm_bound=None if options.norm_bound is None else ring.units(options.norm_bound),
        cohort=options.cohort,
        min_cohort=options.min_cohort,
        join_seconds=options.join_seconds,
        upload_seconds=options.upload_seconds,
        seed=options.seed,
        identity0=options.identity0,
        relay_key=options.relay_key,
        catalogue=digest_of(options.catalogue) if options.catalogue is not None else "",
        privacy=read_privacy(options.privacy, rounds=training["rounds"], ring=ring)
        if options.privacy is not None
        else None,
        **training,
    )
    check_training(task)
    check_budgets(task)
    return task


def _training(options: TaskOptions) -> dict[str, Any]:
    """Return the training settings: those not given follow from the loss and the size of the fleet."""
    people, decays, rounds = options.people, (0.0, 0.0), DEFAULT_ROUNDS
    if people is not None:
        known = options.ratings is not None and options.loss == SQUARED
        density = Density.of(ratings=options.ratings or 0, people=people, items=options.items) if known else None
        row_pull, bias_pull = default_pulls(options.loss, density)
        decays = decay_of(row_pull, people), decay_of(bias_pull, people)
        rounds = default_rounds(people, options.cohort, density)
    numbers = {
        "row_rate": options.row_rate,
        "bias_rate": _given(options.bias_rate, default_bias_rate(options.loss)),
        "dense_rate": options.dense_rate,
        "row_decay": _given(options.row_decay, decays[0]),
        "bias_decay": _given(options.bias_decay, decays[1]),
        "initial_scale": options.initial_scale,
        "guard": options.guard,
    }
    words = {"loss": options.loss, "optimiser": options.optimiser, "schedule": options.schedule}
    decimals = {name: as_decimal(number) for name, number in numbers.items()} | _scale(options)
    return {"rounds": rounds if options.rounds is None else options.rounds, **words, **decimals}


def _scale(options: TaskOptions) -> dict[str, str]:
    """Return the scale of ratings: as found by a survey, or a first guess from the range."""
    lowest, highest, centre, spread = options.lowest, options.highest, 0.0, 1.0
    if lowest is not None and highest is not None:
        centre, spread = (lowest + highest) / 2, (highest - lowest) / 4
    return {
        "centre": as_decimal(_given(options.centre, centre)),
        "spread": as_decimal(_given(options.spread, spread)),
        "lowest": "" if lowest is None else as_decimal(lowest),
        "highest": "" if highest is None else as_decimal(highest),
    }


def _given(number: float | None, default: float) -> float:
    return default if number is None else number


def check_training(task: TaskSpec) -> None:
    """Refuse settings that the servers could not train with, which would show only at the end of the first round."""
    make_optimiser(task)
    check_scale(decimal(task.initial_scale))


def check_budgets(task: TaskSpec) -> None:
    """Refuse a privacy budget that is too small for a single round."""
    if small := [line.kind for line in lines_of(task).values() if not line.rounds()]:
        raise OperationError(
            f"the privacy budget is too small for a single {small[0]} round; use a larger epsilon, or more noise "
            "(multiplier)"
        )


def _geometry(options: TaskOptions) -> Geometry | None:
    """Return the requested layout; None for the binned one, which is planned."""
    if options.layout == "direct":
        return direct_geometry(options.items, options.capacity)
    if options.layout != "binned":
        raise OperationError(f"--layout must be one of {', '.join(LAYOUTS)}")
    if options.capacity > options.items:
        raise OperationError("--capacity must be at most --items: a device cannot have more")
    return None
