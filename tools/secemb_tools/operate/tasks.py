"""Tasks: made from an operator's options, checked, and described for both operators."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from secemb_party.accountant import epsilon_known
from secemb_party.budget import lines_of
from secemb_party.storage import check_scale
from secemb_server0.reconstruct import make_optimiser
from secemb_shared.catalogue import digest_of
from secemb_shared.layout import DEFAULT_LOSS, Geometry, loss_bound
from secemb_shared.messages import Sizes, TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.messages.spec import SQUARED
from secemb_shared.ring import Ring
from secemb_tools.errors import OperationError
from secemb_tools.operate.privacy import read_privacy
from secemb_tools.specification import (
    Density,
    as_decimal,
    build_task,
    decay_of,
    default_bias_rate,
    default_pulls,
    default_rounds,
    direct_geometry,
)

DEFAULT_ROUNDS = 100  # where nothing is known about the fleet
LAYOUTS = ("binned", "direct")
BYTES_ARE = "messages of a round, without HTTP headers, which are below 1,024 bytes per request in each direction"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskOptions:
    """The options of `secemb task create`, in the units that people use."""

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
    people: int | None = None  # expected in the fleet; decays and rounds follow from it
    ratings: int | None = None  # expected in the fleet; the decay of vectors follows from it
    rounds: int | None = None
    join_seconds: int = 60
    upload_seconds: int = 600
    loss: str = SQUARED
    optimiser: str = "adam"
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
        bound=ring.units(options.clip),
        cohort=options.cohort,
        min_cohort=options.min_cohort,
        join_seconds=options.join_seconds,
        upload_seconds=options.upload_seconds,
        seed=options.seed,
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
    """Return how the task is trained: what the options leave open follows from the loss and the size of the fleet."""
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
    }
    words = {"loss": options.loss, "optimiser": options.optimiser, "schedule": options.schedule}
    decimals = {name: as_decimal(number) for name, number in numbers.items()} | _scale(options)
    return {"rounds": rounds if options.rounds is None else options.rounds, **words, **decimals}


def _scale(options: TaskOptions) -> dict[str, str]:
    """Return where ratings lie: what a survey has found, or a first guess from the scale."""
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
    """Refuse what the servers could not train with; they would find out only when the first round ends."""
    make_optimiser(task)
    check_scale(decimal(task.initial_scale))


def check_budgets(task: TaskSpec) -> None:
    """Refuse a privacy budget that is too small for a single round."""
    if small := [line.kind for line in lines_of(task).values() if not line.rounds()]:
        raise OperationError(
            f"the privacy budget is too small for a single {small[0]} round; use a larger epsilon, or more noise "
            "(multiplier)"
        )


class TaskSummary(TypedDict):
    """A task in numbers and words."""

    task_id: str
    name: str
    items: int
    row_width: int
    dense_size: int
    capacity: int
    layout: str
    slots: int
    leaves_per_server_and_device: int
    loss_bound: float
    bytes_up_per_device: int
    bytes_down_per_device: int
    transport: str
    relay_key: str
    bytes_up_relayed: int
    bytes_down_relayed: int
    bytes_are: str
    clip: float
    precision: float
    overflow_budget: str
    cohort: int
    min_cohort: int
    rounds: int
    join_seconds: int
    upload_seconds: int
    loss: str
    optimiser: str
    schedule: str
    decay: str
    seed: int
    initial_scale: str
    ratings: str
    catalogue: str
    privacy: str
    privacy_known: str


def describe_task(task: TaskSpec) -> TaskSummary:
    """Return what two operators should check before they agree on a task."""
    sizes, geometry, ring = Sizes.of(task), task.geometry, task.ring
    privacy = task.privacy
    tail = 0 if privacy is None else max(privacy.rows.tail, privacy.dense.tail)
    largest = task.cohort * task.bound + tail
    return {
        "task_id": task.task_id.hex(),
        "name": task.name,
        "items": task.items,
        "row_width": task.row_width,
        "dense_size": task.dense_size,
        "capacity": task.capacity,
        "layout": _describe_layout(task),
        "slots": geometry.slots,
        "leaves_per_server_and_device": geometry.slots * geometry.leaves,
        "loss_bound": _placement_loss(task),
        "bytes_up_per_device": sizes.upload,
        "bytes_down_per_device": sizes.download + 4 * task.dense_size,
        "transport": _describe_transport(task),
        "relay_key": task.relay_key or "none: created without --server1",
        "bytes_up_relayed": sizes.relayed_upload,
        "bytes_down_relayed": sizes.relayed_download + 4 * task.dense_size,
        "bytes_are": BYTES_ARE,
        "clip": task.bound / 2**task.fraction_bits,
        "precision": 2.0**-task.fraction_bits,
        "overflow_budget": f"{largest / ring.half:.1%} of 2^{task.ring_bits - 1} used by the largest possible sum",
        "cohort": task.cohort,
        "min_cohort": task.min_cohort,
        "rounds": task.rounds,
        "join_seconds": task.join_seconds,
        "upload_seconds": task.upload_seconds,
        "loss": task.loss,
        "optimiser": f"{task.optimiser}, rows {task.row_rate}, biases {task.bias_rate}, dense {task.dense_rate}",
        "schedule": task.schedule,
        "decay": f"rows {task.row_decay}, biases {task.bias_decay}",
        "seed": task.seed,
        "initial_scale": task.initial_scale,
        "ratings": _describe_scale(task),
        "catalogue": task.catalogue or "none: created without --catalogue; devices recommend rows",
        "privacy": _describe_privacy(task),
        "privacy_known": _describe_known(task),
    }


def _describe_scale(task: TaskSpec) -> str:
    return f"from {task.lowest or 'any'} to {task.highest or 'any'}, centre {task.centre}, spread {task.spread}"


def _describe_privacy(task: TaskSpec) -> str:
    if task.privacy is None:
        return "none: sums are exact; created without --privacy"
    chance = f", devices take part with probability {task.privacy.sampling_rate}" if task.privacy.sampling_rate else ""
    lines = [
        f"{line.kind}: ε {line.budget:g} for {line.rounds():,} rounds, noise {line.terms.multiplier:g} times the clip"
        for line in lines_of(task).values()
    ]
    return f"for each {task.privacy.unit}, δ {task.privacy.delta}{chance}; {'; '.join(lines)}"


def _describe_known(task: TaskSpec) -> str:
    """Return what the same rounds give against someone who knows which devices took part."""
    if task.privacy is None or not task.privacy.sampling_rate:
        return "the same: no assumption about which devices take part"
    costs = [f"{line.kind}: ε {epsilon_known(line.terms, line.rounds()):.3g}" for line in lines_of(task).values()]
    return f"{'; '.join(costs)}, against anyone who knows which devices took part: server 0 with enrolment tokens"


def warning_of(task: TaskSpec) -> str | None:
    """Return what an operator should know about a sampling rate."""
    if task.privacy is None or not task.privacy.sampling_rate:
        return None
    return (
        f"with a sampling rate, ε holds only in a large fleet, where {task.privacy.sampling_rate} of all devices is "
        f"well above --min-cohort ({task.min_cohort:,}): rounds with fewer are aborted at no cost, and the number of "
        "sessions tells an observer slightly more than the accounting covers (docs/privacy.md)"
    )


def _describe_transport(task: TaskSpec) -> str:
    relayed = "relayed or direct: devices may send everything through server 0"
    return relayed if task.relays else "direct: devices call both servers"


def _geometry(options: TaskOptions) -> Geometry | None:
    """Return the layout that was asked for; None for the binned one, which is planned."""
    if options.layout == "direct":
        return direct_geometry(options.items, options.capacity)
    if options.layout != "binned":
        raise OperationError(f"--layout must be one of {', '.join(LAYOUTS)}")
    if options.capacity > options.items:
        raise OperationError("--capacity must be at most --items: a device cannot have more")
    return None


def _describe_layout(task: TaskSpec) -> str:
    if task.geometry.is_direct:
        return "direct: each slot's tree spans the catalogue"
    return f"binned: {task.tables} tables of {task.bins} bins of at most {task.geometry.leaves} items"


def _placement_loss(task: TaskSpec) -> float:
    if task.geometry.is_direct:
        return 0.0
    return loss_bound(items=task.items, capacity=task.capacity, tables=task.tables, bins=task.bins)
