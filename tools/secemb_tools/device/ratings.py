"""The owner's own ratings, from a file."""

import csv
from pathlib import Path

from secemb_tools.operate.refusal import OperationError

_FIX = "write one `item,rating` a line, items as their rows in the catalogue"


def read_own_ratings(path: Path) -> dict[int, float]:
    """Return item and rating of each line; a first line of names is left out."""
    try:
        return _read(path)
    except (UnicodeDecodeError, csv.Error):
        raise OperationError(f"{path} is no CSV file in UTF-8; save it as one, and {_FIX}") from None


def _read(path: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row or (number == 1 and not row[0].strip().isdigit()):
                continue
            try:
                found[int(row[0])] = float(row[1])
            except (ValueError, IndexError):
                # The line itself is not repeated: it is what nobody else shall know.
                raise OperationError(f"{path}, line {number}: no item and rating; {_FIX}") from None
    if not found:
        raise OperationError(f"{path} holds no rating; {_FIX}")
    return found
