"""A task made from what an operator decides, and written as two directories: one for each server."""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from secemb_party.accountant import epsilon_known
from secemb_party.budget import lines_of
from secemb_party.storage import check_scale
from secemb_server0.reconstruct import make_optimiser
from secemb_shared.layout import Geometry, loss_bound
from secemb_shared.messages import Sizes, TaskSpec
from secemb_shared.messages.canonical import decimal
from secemb_shared.ring import Ring
from secemb_tools.errors import OperationError
from secemb_tools.operate.home import PUBLIC, SECRET, write_new
from secemb_tools.operate.pairing import read_pair
from secemb_tools.operate.privacy import read_privacy
from secemb_tools.specification import build_task, direct_geometry

LAYOUTS = ("binned", "direct")
BYTES_ARE = "messages of a round, without HTTP headers: those are less than 1,024 a request, each way"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What an operator decides about a task, in the units that people think in."""

    name: str
    items: int
    width: int
    dense_size: int
    capacity: int
    layout: str
    loss: float
    ring_bits: int
    fraction_bits: int
    clip: float
    cohort: int
    min_cohort: int
    rounds: int
    join_seconds: int
    upload_seconds: int
    optimiser: str
    row_rate: str
    dense_rate: str
    seed: int
    initial_scale: str
    relay_key: str = ""  # server 1's relay identity; without it devices talk to both servers
    privacy: Path | None = None  # a file of docs/privacy.md; without it there is no noise


def make_task(wishes: Wishes) -> TaskSpec:
    """Return the task; a combination that is not safe is refused with the reason."""
    ring = Ring(bits=wishes.ring_bits, fraction_bits=wishes.fraction_bits)
    task = build_task(
        name=wishes.name,
        items=wishes.items,
        row_width=wishes.width,
        dense_size=wishes.dense_size,
        capacity=wishes.capacity,
        geometry=_geometry(wishes),
        loss=wishes.loss,
        ring_bits=wishes.ring_bits,
        fraction_bits=wishes.fraction_bits,
        bound=ring.units(wishes.clip),
        cohort=wishes.cohort,
        min_cohort=wishes.min_cohort,
        rounds=wishes.rounds,
        join_seconds=wishes.join_seconds,
        upload_seconds=wishes.upload_seconds,
        optimiser=wishes.optimiser,
        row_rate=wishes.row_rate,
        dense_rate=wishes.dense_rate,
        seed=wishes.seed,
        initial_scale=wishes.initial_scale,
        relay_key=wishes.relay_key,
        privacy=read_privacy(wishes.privacy, rounds=wishes.rounds, ring=ring) if wishes.privacy is not None else None,
    )
    check_training(task)
    check_budgets(task)
    return task


def check_training(task: TaskSpec) -> None:
    """Refuse what the servers could not train with: they would find out when the first round ends."""
    make_optimiser(task)
    check_scale(decimal(task.initial_scale))


def check_budgets(task: TaskSpec) -> None:
    """Refuse a privacy budget that not even one round fits into."""
    if small := [line.kind for line in lines_of(task).values() if not line.rounds()]:
        raise OperationError(
            f"the privacy budget of {small[0]} rounds has no room for one of them: allow a larger epsilon, or more "
            "noise (multiplier)"
        )


def write_task(task: TaskSpec, out: Path) -> None:
    """Write `server0` and `server1` under `out`: each secret is in one file only."""
    folders = [out / "server0", out / "server1"]
    if taken := [folder for folder in folders if folder.exists() and any(folder.iterdir())]:
        raise OperationError(f"{taken[0]} is not empty; nothing is overwritten: name another --out")
    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for folder in folders:
        write_new(folder / "task.json", task.encode(), mode=PUBLIC)
    write_new(folders[0] / "ticket.key", private, mode=SECRET)
    write_new(folders[1] / "ticket.pub", public, mode=PUBLIC)


def read_task(path: Path) -> TaskSpec:
    """Return the task in a file."""
    return TaskSpec.decode(path.read_bytes().strip())


def describe_task(task: TaskSpec) -> dict[str, object]:
    """Return what two operators should look at before they agree."""
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
        "loss_bound": _loss(task),
        "bytes_up_per_device": sizes.upload,
        "bytes_down_per_device": sizes.download + 4 * task.dense_size,
        **_describe_relay(task, sizes),
        "clip": task.bound / 2**task.fraction_bits,
        "precision": 2.0**-task.fraction_bits,
        "overflow_budget": f"{largest / ring.half:.1%} of 2^{task.ring_bits - 1} used by the largest possible sum",
        "cohort": task.cohort,
        "min_cohort": task.min_cohort,
        "rounds": task.rounds,
        "join_seconds": task.join_seconds,
        "upload_seconds": task.upload_seconds,
        "optimiser": f"{task.optimiser}, rows {task.row_rate}, dense {task.dense_rate}",
        "seed": task.seed,
        "initial_scale": task.initial_scale,
        "privacy": _describe_privacy(task),
        "privacy_known": _describe_known(task),
    }


def _describe_privacy(task: TaskSpec) -> str:
    if task.privacy is None:
        return "none: sums are exact; made without --privacy"
    chance = f", devices take part with probability {task.privacy.sampling_rate}" if task.privacy.sampling_rate else ""
    lines = [
        f"{line.kind}: ε {line.budget:g} for {line.rounds():,} rounds, noise of {line.terms.multiplier:g} clips"
        for line in lines_of(task).values()
    ]
    return f"for each {task.privacy.unit}, δ {task.privacy.delta}{chance}; {'; '.join(lines)}"


def _describe_known(task: TaskSpec) -> str:
    """Return what the same rounds promise against somebody from whom chance hides nothing."""
    if task.privacy is None or not task.privacy.sampling_rate:
        return "the same: nothing is assumed about who takes part"
    costs = [f"{line.kind}: ε {epsilon_known(line.terms, line.rounds()):.3g}" for line in lines_of(task).values()]
    return f"{'; '.join(costs)}, against whoever knows who took part: server 0 with enrolment tokens"


def warning_of(task: TaskSpec) -> str | None:
    """Return what an operator should know who counts on chance."""
    if task.privacy is None or not task.privacy.sampling_rate:
        return None
    return (
        f"with a rate, ε holds in a large fleet only, of which {task.privacy.sampling_rate} is well above --min-cohort "
        f"({task.min_cohort:,}): rounds with fewer are aborted and cost nothing, and who sees the number of sessions "
        "learns a little more than is accounted for (docs/privacy.md)"
    )


def _describe_relay(task: TaskSpec, sizes: Sizes) -> dict[str, object]:
    relayed = "relayed or direct: devices may send everything through server 0"
    return {
        "transport": relayed if task.relays else "direct: devices talk to both servers",
        "relay_key": task.relay_key or "none: made without --server1",
        "bytes_up_relayed": sizes.relayed_upload,
        "bytes_down_relayed": sizes.relayed_download + 4 * task.dense_size,
        "bytes_are": BYTES_ARE,
    }


def relay_key_of(pair_file: Path) -> str:
    """Return the relay identity in server 1's pair file."""
    pair = read_pair(pair_file)
    if pair.relay_key is None:
        raise OperationError(
            f"{pair_file} has no relay_key; it must come from server 1: secemb pair export in its directory"
        )
    return pair.relay_key


def _geometry(wishes: Wishes) -> Geometry | None:
    """Return the layout that was asked for; None for the binned one, which is planned."""
    if wishes.layout == "direct":
        return direct_geometry(wishes.items, wishes.capacity)
    if wishes.layout != "binned":
        raise OperationError(f"--layout must be one of {', '.join(LAYOUTS)}")
    if wishes.capacity > wishes.items:
        raise OperationError("--capacity must be at most --items: a device cannot hold more items than there are")
    return None


def _describe_layout(task: TaskSpec) -> str:
    if task.geometry.is_direct:
        return "direct: each slot's tree spans the catalogue"
    return f"binned: {task.tables} tables of {task.bins} bins of at most {task.geometry.leaves} items"


def _loss(task: TaskSpec) -> float:
    if task.geometry.is_direct:
        return 0.0
    return loss_bound(items=task.items, capacity=task.capacity, tables=task.tables, bins=task.bins)
