"""The items of a rating set: row, external id, title and further columns.

On disk it is one CSV file (`row,id,title,…`), which can be kept with a run, a task or a device.
"""

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from secemb_tools.errors import DatasetError

FILE = "catalogue.csv"
_FIRST = ["row", "id", "title"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Catalogue:
    """Items by row. Without ids, as in made-up ratings, a row is its own id."""

    ids: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()  # one per id, or none at all; "" if unknown
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # further columns, one value per id
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Number the ids."""
        object.__setattr__(self, "_rows", {name: row for row, name in enumerate(self.ids)})
        lengths = {len(column) for column in ([self.titles] if self.titles else []) + list(self.others.values())}
        if lengths - {len(self.ids)} or len(self._rows) < len(self.ids):
            raise DatasetError("a catalogue has as many titles as ids, and no id twice; write it again")

    def __len__(self) -> int:
        """Return the number of listed items."""
        return len(self.ids)

    def id_of(self, row: int) -> str:
        """Return the external id of a row."""
        return self.ids[row] if self.ids else str(row)

    def title_of(self, row: int) -> str | None:
        """Return the title of a row, if it is known."""
        return (self.titles[row] or None) if self.titles else None

    def row_of(self, name: str) -> int:
        """Return the row of an external id."""
        if not self.ids and name.isdecimal():
            return int(name)
        if name not in self._rows:
            known = ", ".join(self.ids[:3])
            raise DatasetError(f"no item has the id {name!r}; ids in this catalogue look like {known or '0, 1, 2'}")
        return self._rows[name]

    def search(self, words: str) -> list[int]:
        """Return the rows whose title contains these words, in any case."""
        return [row for row, title in enumerate(self.titles) if words.casefold() in title.casefold()]

    def to_csv(self) -> str:
        """Return the catalogue as the text of a CSV file."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow([*_FIRST, *self.others])
        titles = self.titles or ("",) * len(self.ids)
        rows.writerows(zip(range(len(self.ids)), self.ids, titles, *self.others.values(), strict=True))
        return text.getvalue()

    @classmethod
    def from_csv(cls, lines: Iterable[str], source: str = FILE) -> "Catalogue":
        """Return the catalogue in the lines of a CSV file."""
        rows = csv.reader(lines)
        try:
            head, columns = next(rows, []), [*zip(*_checked(rows, source), strict=True)]
        except DatasetError:
            raise
        except (csv.Error, ValueError):
            raise DatasetError(f"{source} is damaged; write the catalogue again") from None
        if head[:3] != _FIRST or (columns and len(columns) != len(head)):
            raise DatasetError(f"{source} is not a catalogue: its first line begins with {','.join(_FIRST)}")
        columns = columns or [()] * len(head)
        titles = columns[2] if any(columns[2]) else ()
        return cls(ids=columns[1], titles=titles, others=dict(zip(head[3:], columns[3:], strict=True)))

    def write(self, path: Path) -> None:
        """Write the catalogue as one file."""
        path.write_text(self.to_csv(), encoding="utf-8", newline="")

    @classmethod
    def read(cls, path: Path) -> "Catalogue":
        """Return the catalogue of a file."""
        try:
            with path.open(encoding="utf-8", newline="") as file:
                return cls.from_csv(file, str(path))
        except (OSError, UnicodeDecodeError):
            raise DatasetError(f"{path} cannot be read; give a catalogue that `secemb data` wrote") from None


def _checked(rows: Iterable[list[str]], source: str) -> Iterable[list[str]]:
    for number, row in enumerate(rows):
        if not row or row[0] != str(number):
            raise DatasetError(f"{source}, line {number + 2}: row {number} is missing; write the catalogue again")
        yield row
