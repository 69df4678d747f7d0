"""The paper's own figures, by label of the table, row and column."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from secemb_lab.paper.paper_table import Value

FILE = Path(__file__).with_name("printed.json")  # transcribed from the paper's source
_SPREAD = " ± "


@cache
def tables() -> dict[str, Any]:
    """Return all tables: the names of the columns, and the figures of each row."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def printed(label: str, row: str, column: str) -> Value:
    """Return one figure, a mean without its standard deviation."""
    table = tables()[label]
    value: Value = table["rows"][row][table["columns"].index(column)]
    return float(value.split(_SPREAD)[0]) if isinstance(value, str) and _SPREAD in value else value


def printed_spread(label: str, row: str, column: str) -> float | None:
    """Return the standard deviation that the paper prints beside a figure, if it prints one."""
    table = tables()[label]
    value: Value = table["rows"][row][table["columns"].index(column)]
    return float(value.split(_SPREAD)[1]) if isinstance(value, str) and _SPREAD in value else None
