"""One training of the table of sequences: a model of events on a set, with one method."""

from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any

from secemb_lab.paper.compression.reductions import compressor_of
from secemb_lab.paper.compression.stored_cases import Figures
from secemb_lab.report.sequences_run import value_of
from secemb_tools.simulation.baseline import AMONG_STRANGERS, measure_final
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.scenario import make_world

SETS = {"ML1M": "ml-1m", "Amazon": "amazon-video-games"}  # as in the paper's table, and the folder
RANKS = {"ML1M": 8, "Amazon": 4}  # of the paper, for both models
FIGURES = ("hit_rate", "ndcg")
_NO_EVALUATIONS = 10**6  # rounds: the figures are measured once, at the end
_QUICK: dict[str, Any] = {"devices": 12, "items": 60, "cohort": 4, "rounds": 2}
_ROUNDS = 600
_SECONDS = {"caser": 0.6, "sasrec": 0.5}  # of a round of 100 devices, about


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceCase:
    """The model, set and method of a training."""

    catalogue: str  # as in the paper's table
    model: str
    method: str
    seed: int = 1
    path: Path | None = None  # None: synthetic events and few rounds

    @property
    def name(self) -> str:
        """Return the name of the case."""
        method = self.method.lower().replace(" ", "-")
        return f"{self.catalogue.lower()}-{self.model}-{method}-{self.seed}{'' if self.path else '-quick'}"

    @property
    def weight(self) -> float:
        """Return the approximate duration in seconds."""
        return _ROUNDS * _SECONDS[self.model]

    def measure(self) -> Figures:
        """Train; return the ranking of everybody's last event among 100 strangers, by the model and by popularity."""
        begin = process_time()
        settings = _QUICK if self.path is None else {"data": self.path, "rounds": _ROUNDS}
        world = make_world(model=self.model, seed=self.seed, evaluate_every=_NO_EVALUATIONS, patience=0, **settings)
        engine = Engine(world, way=PLAIN, lossy=compressor_of(self.method, rank=RANKS[self.catalogue]))
        for _ in range(world.recipe.rounds):
            engine.step()
        final = measure_final(engine) or {}
        found = {
            f"{of} {name}": value_of(final.get(of + AMONG_STRANGERS, {}).get(name))
            for of in ("model", "popularity")
            for name in FIGURES
        }
        figures = {name: value for name, value in found.items() if value is not None}
        return figures | {"failed": engine.counts.failed, "cpu_seconds": process_time() - begin}
