"""A device through one round, for every model on every catalogue: where its processor time goes, memory and bytes.

What travels is set against two ways without point functions: plain federated learning, which moves the whole model in
both directions, and full-matrix sharing, which sends two shares of it.
"""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import track
from rich.table import Table

from secemb_party.evaluation import Evaluation
from secemb_sdk.flow import DeviceSession, Messages
from secemb_sdk.models import Floats, MatrixFactorisation, Model, PrivateState, Ratings, learn
from secemb_shared import reading
from secemb_shared.layout import plan
from secemb_shared.messages import Sizes
from secemb_shared.randomness import Indices
from secemb_tools.bench.catalogues import Catalogue

PHASES = ("keys", "reconstruction", "training", "correction words")
_TURNS = 3
_NUMBER = 4  # bytes of a float32 and of a ring element


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """What a round costs a device with a full taste; bytes count both servers."""

    catalogue: str
    model: str
    row_width: int
    dense_size: int
    cpu_ms: dict[str, float]  # by phase
    peak_bytes: int  # allocated at once on top of the model and the dense part
    upload_bytes: int
    download_bytes: int
    model_bytes: int  # the whole model, once
    sharing_bytes: int  # two shares of an update of the whole model


def measure(console: Console, chosen: list[Catalogue]) -> list[dict[str, Any]]:
    """Measure every model that can be trained here on every chosen catalogue."""
    cases = [(catalogue, name, make) for catalogue in chosen for name, make in _models(SIDES[catalogue.name]).items()]
    steps = track(cases, "a device's round", console=console, transient=True)
    return [asdict(_figure(catalogue, name, make())) for catalogue, name, make in steps]


def show(console: Console, figures: list[dict[str, Any]]) -> None:
    """Print the figures, and what is missing without torch."""
    table = Table(title="A device's round, one thread", title_justify="left")
    names = ("row", "dense", *(f"{phase} ms" for phase in PHASES), "peak MB", "up MB", "down MB")
    for name in ("catalogue", "model", *names, "whole model MB", "full-matrix sharing up MB", "times less up"):
        table.add_column(name, justify="left" if name in ("catalogue", "model") else "right")
    for row in figures:
        table.add_row(
            row["catalogue"],
            row["model"],
            str(row["row_width"]),
            f"{row['dense_size']:,}",
            *(f"{row['cpu_ms'][phase]:.2f}" for phase in PHASES),
            *(f"{row[name] / 1e6:.3f}" for name in ("peak_bytes", "upload_bytes", "download_bytes")),
            *(f"{row[name] / 1e6:.2f}" for name in ("model_bytes", "sharing_bytes")),
            f"{row['sharing_bytes'] / row['upload_bytes']:.1f}",
        )
    console.print(table)
    if not _torch_is_here():
        console.print("NCF, FM and DeepFM need torch: pip install 'secemb[train]'")


def _torch_is_here() -> bool:
    return find_spec("torch") is not None


def _models(sides: Sides) -> dict[str, Callable[[], Model]]:
    """Return what makes each model, in the sizes of the paper."""
    made: dict[str, Callable[[], Model]] = {"MF": MatrixFactorisation}
    if not _torch_is_here():
        return made
    from secemb_sdk.models import torch as models

    models.compute_alone()
    person = (np.arange(sides.user_features) % 28 == 0).astype(np.uint8)

    def lookup(items: Indices) -> npt.NDArray[np.uint8]:
        chosen: npt.NDArray[np.bool_] = items[:, None] % (np.arange(sides.item_features) + 3) == 0
        return chosen.astype(np.uint8)

    return made | {
        "NCF": lambda: models.NeuralCollaborativeFiltering(dimension=sides.ncf_dimension),
        "FM": lambda: models.FactorisationMachine(user_features=person, item_features=lookup),
        "DeepFM": lambda: models.DeepFactorisationMachine(user_features=person, item_features=lookup),
    }


def _figure(catalogue: Catalogue, name: str, model: Model) -> Figure:
    case = Case(catalogue, model)
    times = [case.run() for _ in range(_TURNS)]
    task = case.round.task
    sizes, whole = Sizes.of(task), _NUMBER * (task.items * task.row_width + task.dense_size)
    return Figure(
        catalogue=catalogue.name,
        model=name,
        row_width=task.row_width,
        dense_size=task.dense_size,
        cpu_ms={phase: 1e3 * min(one[phase] for one in times) for phase in PHASES},
        peak_bytes=case.peak(),
        upload_bytes=sizes.upload,
        download_bytes=sizes.download + _NUMBER * task.dense_size,
        model_bytes=whole,
        sharing_bytes=2 * whole,
    )


class Case:
    """One model on one catalogue: a device whose taste is full, and both servers in this process."""

    def __init__(self, catalogue: Catalogue, model: Model) -> None:
        rng = np.random.default_rng(0)
        geometry = plan(items=catalogue.items, capacity=catalogue.capacity, row_width=model.row_width).geometry
        self.round = catalogue.round(geometry, row_width=model.row_width, dense_size=model.dense_size)
        self._model = model
        table = rng.normal(0, 0.1, (catalogue.items, model.row_width)).astype(np.float32)
        tagged = reading.tag_rows(self.round, table)
        self._servers = [Evaluation(self.round, party, tagged) for party in (0, 1)]
        self._dense: Floats = rng.normal(0, 0.1, model.dense_size).astype(np.float32)
        self._items = rng.choice(catalogue.items, catalogue.capacity, replace=False).astype(np.int64)
        self._values: Floats = rng.integers(1, 6, catalogue.capacity).astype(np.float32)
        self._private = PrivateState.begin(model, rng)
        self._spent: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        """Go through a round; return the processor seconds of each of the device's phases."""
        self._spent = {}
        with self._timed("keys"):
            session = DeviceSession(self.round, self._items)
        answers = self._answers(session)
        self._finish(session, answers)
        return self._spent

    def peak(self) -> int:
        """Return the most bytes that the device had allocated at once; the servers' work is not counted."""
        gc.collect()
        tracemalloc.start()
        session = DeviceSession(self.round, self._items)
        keys = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        answers = self._answers(session)
        gc.collect()
        tracemalloc.start()
        self._finish(session, answers)
        rest = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return max(keys, rest)

    def _answers(self, session: DeviceSession) -> Messages:
        first, second = (
            server.answer(session.session_id, keys) for server, keys in zip(self._servers, session.keys, strict=True)
        )
        return first, second

    def _finish(self, session: DeviceSession, answers: Messages) -> None:
        with self._timed("reconstruction"):
            items, rows = session.read(answers)
        with self._timed("training"):
            ratings = Ratings(items, self._values[: items.size])
            by_row, by_dense, _ = learn(self._model, self._private, rows, self._dense, ratings, rate=0.025)
        with self._timed("correction words"):
            session.write(items, np.clip(by_row, -16, 16), np.clip(by_dense, -16, 16))

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = process_time()
        yield
        self._spent[phase] = process_time() - start
