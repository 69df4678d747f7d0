"""A device through one round, for every model on every catalogue: processor time by phase, memory and bytes.

The bytes are compared with two methods without point functions: plain federated learning, which moves the whole model
in both directions, and full-matrix sharing, which sends two shares of it.
"""

import json
import subprocess
import sys
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from secemb_lab import child_environment
from secemb_lab.bench import device_models, device_process
from secemb_lab.bench.device_models import Workload
from secemb_party.evaluation import Evaluation, KeysMessage
from secemb_sdk.models import Model, registry
from secemb_sdk.round.session import DeviceSession, Messages
from secemb_shared import row_access
from secemb_shared.layout import plan
from secemb_shared.messages import Sizes
from secemb_tools.catalogues import PaperCatalogue

PHASES = ("keys", "reconstruction", "training", "correction words")
_TURNS = 3
_NUMBER = 4  # bytes of a float32 and of a ring element


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """The cost of a round for a device with a full workload; bytes are for both servers together."""

    catalogue: str
    model: str
    row_width: int
    dense_size: int
    cpu_ms: dict[str, float]  # by phase
    peak_bytes: int  # growth of a process with the model and the dense part in its first round
    process_bytes: int  # peak of that process, including interpreter and libraries
    upload_bytes: int
    download_bytes: int
    model_bytes: int  # the whole model, once
    sharing_bytes: int  # two shares of an update of the whole model


def measure(console: Console, chosen: list[PaperCatalogue], models: Collection[str] = ()) -> list[dict[str, Any]]:
    """Measure these models, or every one that can be trained here, on every chosen catalogue."""
    cases = [(catalogue, name) for catalogue in chosen for name in models or device_models.names()]
    steps = track(cases, "a device's round", console=console, transient=True)
    return [asdict(_figure(catalogue, name)) for catalogue, name in steps]


def show(console: Console, figures: list[dict[str, Any]]) -> None:
    """Print the figures, and those missing without torch."""
    table = Table(title="A device's round, one thread", title_justify="left")
    names = ("row", "dense", *(f"{phase} ms" for phase in PHASES), "memory MB", "process MB", "up MB", "down MB")
    for name in ("catalogue", "model", *names, "whole model MB", "full-matrix sharing up MB", "upload reduction"):
        table.add_column(name, justify="left" if name in ("catalogue", "model") else "right")
    for row in figures:
        table.add_row(
            row["catalogue"],
            row["model"],
            str(row["row_width"]),
            f"{row['dense_size']:,}",
            *(f"{row['cpu_ms'][phase]:.2f}" for phase in PHASES),
            *(f"{row[name] / 1e6:.1f}" for name in ("peak_bytes", "process_bytes")),
            *(f"{row[name] / 1e6:.3f}" for name in ("upload_bytes", "download_bytes")),
            *(f"{row[name] / 1e6:.2f}" for name in ("model_bytes", "sharing_bytes")),
            f"{row['sharing_bytes'] / row['upload_bytes']:.1f}",
        )
    console.print(table)
    if not device_models.torch_is_here():
        console.print("the other models need torch: pip install 'secemb[train]'")


def _figure(catalogue: PaperCatalogue, name: str) -> Figure:
    case = Case(catalogue, device_models.make(name, catalogue.name))
    times = [case.run() for _ in range(_TURNS)]
    task = case.round.task
    sizes, whole = Sizes.of(task), _NUMBER * (task.items * task.row_width + task.dense_size)
    return Figure(
        catalogue=catalogue.name,
        model=registry.find(name).title,
        row_width=task.row_width,
        dense_size=task.dense_size,
        cpu_ms={phase: 1e3 * min(one[phase] for one in times) for phase in PHASES},
        **case.memory(name),
        upload_bytes=sizes.upload,
        download_bytes=sizes.download + _NUMBER * task.dense_size,
        model_bytes=whole,
        sharing_bytes=2 * whole,
    )


class Case:
    """One model on one catalogue: a device with a full workload, and both servers in this process."""

    def __init__(self, catalogue: PaperCatalogue, model: Model) -> None:
        rng = np.random.default_rng(0)
        geometry = plan(items=catalogue.items, capacity=catalogue.capacity, row_width=model.row_width).geometry
        self.round = catalogue.round(geometry, row_width=model.row_width, dense_size=model.dense_size)
        self._name, self._workload = catalogue.name, Workload.draw(self.round, model)
        table = rng.normal(0, 0.1, (catalogue.items, model.row_width)).astype(np.float32)
        tagged = row_access.tag_rows(self.round, table)
        self._servers = [Evaluation(self.round, party, tagged) for party in (0, 1)]
        self._spent: dict[str, float] = {}

    def run(self) -> dict[str, float]:
        """Go through a round; return the processor seconds of each of the device's phases."""
        self._spent, workload = {}, self._workload
        with self._timed("keys"):
            session = DeviceSession(self.round, workload.items)
        answers = self._answers(session.session_id, session.keys)
        with self._timed("reconstruction"):
            items, rows = session.read(answers)
        with self._timed("training"):
            moved = workload.train(items, rows)
        with self._timed("correction words"):
            workload.write(session, items, moved)
        return self._spent

    def memory(self, model: str) -> dict[str, int]:
        """Run a device through a round in its own process; return the memory it took."""
        file = Path(str(device_process.__file__))
        # -P: do not import from the folder of that file.
        program = [sys.executable, "-P", str(file)]
        with subprocess.Popen(
            program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=child_environment()
        ) as device:
            if device.stdin is None or device.stdout is None:
                raise RuntimeError("the process has no pipes")
            what = {"task": self.round.task.encode().decode(), "round": self.round.encode().decode()}
            device_process.put(device.stdin, json.dumps({**what, "model": model, "catalogue": self._name}).encode())
            session_id, *keys = (device_process.take(device.stdout) for _ in range(3))
            for answer in self._answers(session_id, (keys[0], keys[1])):
                device_process.put(device.stdin, answer)
            found: dict[str, int] = json.loads(device_process.take(device.stdout))
        return found

    def _answers(self, session_id: bytes, keys: Messages) -> Messages:
        first, second = (
            server.answer([KeysMessage(session_id, one)]) for server, one in zip(self._servers, keys, strict=True)
        )
        return first[0], second[0]

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        start = process_time()
        yield
        self._spent[phase] = process_time() - start
