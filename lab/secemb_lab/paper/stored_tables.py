"""Measured tables in a JSON file, each with the machine that measured it."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from secemb_lab.paper.paper_table import Cell, Table
from secemb_tools.errors import OperationError


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A table, and where it was measured."""

    table: Table
    machine: dict[str, str]
    quick: bool
    seeds: int


_MEASURED = TypeAdapter(list[Measured])


def read(path: Path) -> list[Measured]:
    """Return the contents of a file; nothing if there is no file."""
    if not path.exists():
        return []
    try:
        return _MEASURED.validate_python(json.loads(path.read_bytes())["tables"])
    except (ValidationError, ValueError, KeyError, TypeError):
        raise OperationError(
            f"{path} does not hold tables of the paper; move it away, or choose another --folder"
        ) from None


def write(path: Path, found: Sequence[Measured]) -> None:
    """Write the file, a line for each cell so that two versions can be compared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tables = ",\n".join(_written(one) for one in found)
    path.write_text(f'{{"tables": [\n{tables}\n]}}\n', encoding="utf-8")


def document(found: Sequence[Measured]) -> dict[str, Any]:
    """Return everything as JSON types, with ratios and verdicts."""
    return {
        "tables": [
            {**asdict(one), "table": {**asdict(one.table), "cells": [_judged(cell) for cell in one.table.cells]}}
            for one in found
        ]
    }


def _judged(cell: Cell) -> dict[str, Any]:
    return {**asdict(cell), "ratio": cell.ratio, "verdict": cell.verdict.value}


def _written(one: Measured) -> str:
    rest = {**asdict(one), "table": {**asdict(one.table), "cells": [], "plots": []}}
    text = _line(rest)
    for name, parts in (("cells", map(_judged, one.table.cells)), ("plots", map(asdict, one.table.plots))):
        lines = ",\n  ".join(map(_line, parts))
        text = text.replace(f'"{name}": []', f'"{name}": [\n  {lines}]' if lines else f'"{name}": []', 1)
    return text


def _line(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def merged(earlier: Sequence[Measured], later: Sequence[Measured], order: Sequence[str]) -> list[Measured]:
    """Return all tables, the later ones where both have one, in the order of the report."""
    by_name = {one.table.name: one for one in (*earlier, *later)}
    return [by_name[name] for name in order if name in by_name]
