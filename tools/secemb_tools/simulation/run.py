"""One run: its table, its plot and its files."""

import csv
import io
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from secemb_party.storage import Model
from secemb_sdk import Recommendation
from secemb_sdk.errors import UnknownModelError
from secemb_sdk.home.files import write_file
from secemb_shared.messages.measures import Mark, find_stall
from secemb_shared.messages.spec import SQUARED, TRAIN
from secemb_tools.charts import line_chart
from secemb_tools.errors import RunError
from secemb_tools.simulation.engine import Engine, Row
from secemb_tools.simulation.recommender import Exported, Recommender
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.scenario import Scenario, world_of
from secemb_tools.simulation.state import FILE as STATE
from secemb_tools.simulation.state import keep_ratings, read_kept, restore_state, save_state

if TYPE_CHECKING:
    from polars import DataFrame

FORMAT = "secemb/1 run"
FILE, ROUNDS = "run.json", "rounds.csv"
ALL_ROUNDS, EARLY, CUT = "all rounds", "stopped early", "interrupted"  # how runs end


class Stretch(NamedTuple):
    """A part of a run: rounds from the start until it was continued, and the rounds of the task at that time."""

    until: int
    rounds: int


class Return(NamedTuple):
    """A return to an earlier version: the round after it, the version before it, and the version restored."""

    round: int
    last: int
    version: int


@dataclass(slots=True, kw_only=True)
class Run:
    """The result of a scenario: a row for each round, and the rows of a plain run if requested."""

    name: str
    scenario: Scenario
    way: str  # private, plain or http
    task_id: str
    rows: list[Row] = field(default_factory=list)
    plain: list[Row] | None = None
    seconds: float = 0.0  # of work; not part of the table
    final: dict[str, Any] | None = None  # figures over all held-out data, for the model and for baselines
    continued: list[Stretch] = field(default_factory=list)  # the rounds before the task was extended
    folder: Path | None = field(default=None, repr=False, compare=False)  # where it is saved
    engines: list[Engine] = field(default_factory=list, repr=False, compare=False)  # of the run and of the plain run

    @property
    def finished(self) -> bool:
        """Tell whether all rounds have been run, or training has stopped early."""
        return len(self.rows) >= self.scenario.all_rounds or self.stopped

    @property
    def ended(self) -> str:
        """Return why there are no more rounds; a run in progress elsewhere looks interrupted."""
        if len(self.rows) >= self.scenario.all_rounds:
            return ALL_ROUNDS
        return EARLY if self.stopped else CUT

    @property
    def returns(self) -> list[Return]:
        """Return the points at which the run returned to a better version than its last one, dropping later ones."""
        found = []
        for stretch in self.continued:
            if 0 < stretch.until < len(self.rows):
                last, following = self.rows[stretch.until - 1], self.rows[stretch.until]
                if (version := following.version - (following.kind == TRAIN)) < last.version:
                    found.append(Return(following.round, last.version, version))
        return found

    @property
    def trained(self) -> int:
        """Return how many rounds have trained."""
        return sum(row.kind == TRAIN for row in self.rows)

    @property
    def stopped(self) -> bool:
        """Tell whether the last evaluations were worse than an earlier one, so that more rounds would not help."""
        begin = self.continued[-1].until if self.continued else 0
        marks = [mark for row in self.rows[begin:] if (mark := row.mark) is not None]
        settles = self.scenario.recipe.schedule == "cosine"
        return find_stall(marks, patience=self.scenario.patience, settles=settles) is not None

    @property
    def without_vectors(self) -> bool:
        """Tell whether the biases alone predict better in the fleet's newest evaluations: the run then ends with them.

        Only matrix factorisation still works without its vectors. Rankings keep theirs: a ranking among a few strangers
        flatters popularity, and says too little about one of the whole catalogue.
        """
        recipe, window = self.scenario.recipe, self.window
        if self.ended != ALL_ROUNDS or (recipe.model, recipe.loss) != ("mf", SQUARED) or not recipe.dimension:
            return False
        return Mark.of(window) is not None and bool(window["rmse"] > window["biases_rmse"])

    @property
    def rmse(self) -> float | None:
        """Return the last error that was measured."""
        return last_rmse(self.rows)

    @property
    def window(self) -> dict[str, Any]:
        """Return the fleet's figures: those of the newest evaluations together, with intervals and baselines."""
        return next((row.window for row in reversed(self.rows) if row.window), {})

    @property
    def same_as_plain(self) -> bool | None:
        """Tell whether every row is bit-identical to the plain run's; None if there was none."""
        return None if self.plain is None else self.plain[: len(self.rows)] == self.rows

    @property
    def ways(self) -> list[str]:
        """Return how the run's engines sum updates."""
        return [self.way] if self.plain is None else [self.way, PLAIN]

    def standing(self) -> list[Engine]:
        """Return the engines in the run's current state; those of a saved run are read from its directory."""
        if not self.engines:
            if self.folder is None or not (self.folder / STATE).exists():
                raise RunError(f"{self.name} has no model; run it with `secemb simulate`, which saves the model")
            world = world_of(self.scenario, read_kept(self.folder))
            engines = [Engine(world, way=way) for way in self.ways]
            restore_state(self.folder / STATE, engines)
            self.engines = engines
        return self.engines

    @property
    def recommender(self) -> Recommender:
        """Return the model, the people who trained it, and the catalogue."""
        return Recommender(self.standing()[0])

    @property
    def model(self) -> Model:
        """Return the current model: `rows`, `dense`, `version` and `digest`."""
        return self.recommender.model

    def recommend(
        self, *, user: str | None = None, likes: Iterable[str] = (), k: int = 10, include_rated: bool = False
    ) -> list[Recommendation]:
        """Return the best items, with ids and titles, for a person of the set or for someone who likes these items."""
        likes = list(likes)
        if (user is None) == (not likes):
            raise RunError("give either a user of the set or the ids of liked items")
        if user is None:
            return self.recommender.for_likes(likes, k=k)
        return self.recommender.for_user(user, k=k, include_rated=include_rated)

    def export(self, path: Path | str) -> Exported:
        """Write the model as a safetensors file with task and settings, and the catalogue next to it."""
        facts = {name: value for name, value in self.as_json().items() if not name.endswith("table")}
        return self.recommender.export(Path(path), facts)

    def to_frame(self) -> "DataFrame":
        """Return the table as a polars DataFrame."""
        from polars import DataFrame  # here: it takes a third of a second to import

        return DataFrame(self._flat_table(), infer_schema_length=None)

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each round. On one machine the same scenario has the same table, whatever the transport.

        A different kind of processor may sum floats in a different order, so that the last bits differ.
        """
        return [row.as_json() for row in self.rows]

    def plot(self) -> str:
        """Return the error over the rounds as SVG; without ratings, the NDCG of held-out items."""
        series = {self.way: points_of(self.rows)}
        if self.plain is not None:
            series["plain"] = points_of(self.plain)
        rates = self.scenario.recipe.loss == SQUARED
        title = "RMSE on held-out ratings" if rates else "NDCG@10 of held-out items"
        return line_chart(series, title=title, across="round")

    def as_json(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "format": FORMAT,
            "name": self.name,
            "scenario": self.scenario.as_json(),
            "way": self.way,
            "task_id": self.task_id,
            "finished": self.finished,
            "ended": self.ended,
            "rmse": self.rmse,
            "plain_rmse": None if self.plain is None else last_rmse(self.plain),
            "same_as_plain": self.same_as_plain,
            "seconds": round(self.seconds, 3),
            "final": self.final,
            "continued": [stretch._asdict() for stretch in self.continued],
            "table": self.table(),
            "plain_table": None if self.plain is None else [row.as_json() for row in self.plain],
        }

    def save(self, folder: Path | str) -> Path:
        """Write the run into a directory with its name and return it; each file is replaced atomically.

        run.json and rounds.csv have the table, plot.svg its picture, state.safetensors the model; ratings.npz and
        catalogue.csv have the set, so that the run needs no other file.
        """
        path = Path(folder) / self.name
        path.mkdir(parents=True, exist_ok=True)
        write_file(path / "plot.svg", self.plot().encode())
        write_file(path / ROUNDS, self.to_csv().encode())
        write_file(path / FILE, (json.dumps(self.as_json(), indent=1) + "\n").encode())
        if self.engines:
            save_state(path / STATE, self.engines, [self.rows] if self.plain is None else [self.rows, self.plain])
            keep_ratings(path, self.engines[0].world.ratings)
        return path

    def to_csv(self) -> str:
        """Return the table as CSV, one line for each round; figures of the fleet have a column each."""
        text, table = io.StringIO(), self._flat_table()
        columns = dict.fromkeys(name for row in table for name in row)
        lines = csv.DictWriter(text, list(columns), lineterminator="\n")
        lines.writeheader()
        lines.writerows(table)
        return text.getvalue()

    def _flat_table(self) -> list[dict[str, Any]]:
        plain = ("round", "kind", "sessions", "version", "digest")
        return [{**{name: getattr(row, name) for name in plain}, **row.figures} for row in self.rows]

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """Read what `save` has written."""
        try:
            found = json.loads((Path(path) / FILE).read_bytes())
            if found["format"] != FORMAT:
                raise ValueError
            plain = found["plain_table"]
            return cls(
                name=found["name"],
                scenario=Scenario.read(found["scenario"]),
                way=found["way"],
                task_id=found["task_id"],
                rows=[Row.read(row) for row in found["table"]],
                plain=None if plain is None else [Row.read(row) for row in plain],
                seconds=found["seconds"],
                final=found["final"],
                continued=[Stretch(**one) for one in found["continued"]],
                folder=Path(path),
            )
        except UnknownModelError as error:  # its class may be missing here, but the run itself is complete
            raise RunError(f"{path}: the run's model {error}") from None
        except FileNotFoundError:
            raise RunError(f"no run found in {path}; `secemb run list` lists the saved runs") from None
        except (ValueError, KeyError, TypeError):
            raise RunError(
                f"{path} contains no run that this version can read; remove it, or use the version that wrote it"
            ) from None


def points_of(rows: list[Row]) -> list[tuple[float, float]]:
    """Return the points of a run's errors on a plot, or of its rankings if it predicts no ratings."""
    found = [(row.round, row.ndcg if row.rmse is None else row.rmse) for row in rows]
    return [(float(number), value) for number, value in found if value is not None]


def last_rmse(rows: list[Row]) -> float | None:
    """Return the last error in a table."""
    return next((row.rmse for row in reversed(rows) if row.rmse is not None), None)
