"""The data to resume an interrupted run: its state, replaced atomically, and its ratings."""

import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from secemb_party.storage import Model, OptimiserState
from secemb_sdk.home.files import write_file
from secemb_sdk.models import PrivateState
from secemb_shared.catalogue import FILE as CATALOGUE
from secemb_shared.catalogue import Catalogue
from secemb_tools.datasets import RatingSet
from secemb_tools.datasets.catalogue import read_catalogue
from secemb_tools.errors import RunError
from secemb_tools.simulation.engine import Engine, Row

FILE = "state.safetensors"
_OPTIMISER = "optimiser "
_PARTS = ("values", "first", "second")  # of a private state

Tensors = dict[str, np.ndarray]
Tables = list[list[Row]]  # one for each engine
RATINGS = "ratings.npz"
_ARRAYS = ("people", "items", "values", "user_features", "item_features")
_WHEN = ("times", "order")  # which a set may have
_UNSEEN = "unseen "  # prefix of the kinds of texts that no device has


def save_state(path: Path, engines: Sequence[Engine], tables: Tables) -> None:
    """Write the state of all engines, which must have run equally many rounds."""
    tensors: Tensors = {}
    for engine in engines:
        tensors |= {f"{engine.way} {name}": value for name, value in _tensors_of(engine)}
    facts = {
        "task": engines[0].world.task.task_id.hex(),
        "ratings": engines[0].world.ratings.digest,
        "rounds": engines[0].rounds,
        "versions": [engine.model.version for engine in engines],
        "tables": [[row.as_json() for row in table] for table in tables],
    }
    write_file(path, save(tensors, metadata={"run": json.dumps(facts)}))


def restore_state(path: Path, engines: Sequence[Engine]) -> Tables | None:
    """Restore the state of engines; return their tables, or None if nothing was saved."""
    if not path.exists():
        return None
    try:
        with safe_open(path, framework="np") as file:
            facts = json.loads(file.metadata()["run"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no mapping)
        if facts["task"] != engines[0].world.task.task_id.hex():
            raise RunError(f"{path} belongs to another task; choose another --name, or remove it")
        if facts["ratings"] != engines[0].world.ratings.digest:
            raise RunError(f"{path} was saved with different ratings; restore them or choose another --name")
        if len(facts["versions"]) != len(engines):
            raise RunError(f"{path} was saved with a different --compare; use the same one, or choose another --name")
        for engine, version in zip(engines, facts["versions"], strict=True):
            engine.rounds = facts["rounds"]
            _restore(engine, version, _named(tensors, f"{engine.way} "))
        tables = [[Row.read(row) for row in table] for table in facts["tables"]]
        for engine, table in zip(engines, tables, strict=True):
            engine.evaluated = {row.round: row.sums for row in table if row.sums}
        return tables
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"{path} is corrupted; remove it to start the run from the beginning") from error


def carry_over(old: Engine, new: Engine) -> None:
    """Copy an engine's state to an engine of another task of the same shape."""
    new.rounds, new.evaluated = old.rounds, dict(old.evaluated)
    if old.whole is not None:
        old.model, old.whole = old.whole, None
    _restore(new, old.model.version, dict(_tensors_of(old)))


def _tensors_of(engine: Engine) -> Iterator[tuple[str, np.ndarray]]:
    yield "rows", engine.model.rows
    yield "dense", engine.model.dense
    if engine.whole is not None:
        yield "whole rows", engine.whole.rows
    if engine.model.version > 0:
        state = engine.optimiser.state()
        yield from ((_OPTIMISER + name, value) for name, value in state.tensors.items())
        yield "steps", np.array([state.steps], dtype=np.int64)
    if engine.best is not None:
        mark, model = engine.best
        yield "best mark", np.array([mark, model.version], dtype=np.float64)
        yield "best rows", model.rows
        yield "best dense", model.dense
    known = sorted(engine.privates.items())
    yield "people", np.array([person for person, _ in known], dtype=np.int64)
    yield "private steps", np.array([private.steps for _, private in known], dtype=np.int64)
    for part in _PARTS:
        if known:
            yield f"private {part}", np.stack([getattr(private, part) for _, private in known])


def _restore(engine: Engine, version: int, tensors: Tensors) -> None:
    task_id = engine.world.task.task_id
    engine.model = Model(task_id=task_id, version=version, rows=tensors["rows"], dense=tensors["dense"])
    if "best mark" in tensors:
        mark, best = tensors["best mark"].tolist()
        rows, dense = tensors["best rows"], tensors["best dense"]
        engine.best = mark, Model(task_id=task_id, version=int(best), rows=rows, dense=dense)
    if "whole rows" in tensors:
        rows = tensors["whole rows"]
        engine.whole = Model(task_id=task_id, version=version - 1, rows=rows, dense=tensors["dense"])
    if version > 0:
        remembered = _named(tensors, _OPTIMISER)
        steps, kind = int(tensors["steps"][0]), engine.optimiser.kind
        engine.optimiser.restore(
            OptimiserState(task_id=task_id, version=version, kind=kind, steps=steps, tensors=remembered)
        )
    for place, person in enumerate(tensors["people"].tolist()):
        parts = {part: tensors[f"private {part}"][place].copy() for part in _PARTS}
        state = PrivateState(**parts, steps=int(tensors["private steps"][place]))
        engine.privates[person] = state


def _named(tensors: Tensors, prefix: str) -> Tensors:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}


def keep_ratings(folder: Path, ratings: RatingSet) -> None:
    """Write a set, once."""
    if (folder / RATINGS).exists():
        return
    file = io.BytesIO()
    arrays = {name: getattr(ratings, name) for name in _ARRAYS}
    arrays |= {name: when for name in _WHEN if (when := getattr(ratings, name)) is not None}
    arrays |= {_UNSEEN + what: words for what, words in ratings.unseen.items()}
    facts = [ratings.name, ratings.layout, ratings.kind or "", "implicit" if ratings.implicit else ""]
    np.savez_compressed(file, **arrays, user_ids=np.array(ratings.user_ids, dtype=np.str_), facts=np.array(facts))
    if len(ratings.catalogue):
        write_file(folder / CATALOGUE, ratings.catalogue.encode())
    write_file(folder / RATINGS, file.getvalue())


def read_kept(folder: Path) -> RatingSet:
    """Return the ratings of a run."""
    path = folder / RATINGS
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            name, layout, kind, implicit = file["facts"].tolist()
            return RatingSet(
                name=name,
                layout=layout,
                kind=kind or None,
                implicit=bool(implicit),
                user_ids=tuple(file["user_ids"].tolist()),
                catalogue=read_catalogue(folder / CATALOGUE) if (folder / CATALOGUE).exists() else Catalogue(),
                **{name: file[name] for name in _ARRAYS},
                **{name: file[name] for name in _WHEN if name in file},
                unseen={name.removeprefix(_UNSEEN): file[name] for name in file if name.startswith(_UNSEEN)},
            )
    except (OSError, ValueError, KeyError, BadZipFile):
        raise RunError(f"{path} is corrupted; remove the run and simulate it again") from None
