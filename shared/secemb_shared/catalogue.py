"""The items of a task by row: external id, title and further columns, in one CSV file (`row,id,title,…`, UTF-8).

The file is public. Its SHA-256 is in the task, both servers serve it, and a device always fetches the whole file, so
the servers do not learn which rows it looks up.
"""

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from secemb_shared.errors import CatalogueError

FILE = "catalogue.csv"
LARGEST = 2**26  # size limit of a file, in bytes
_FIRST = ["row", "id", "title"]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Catalogue:
    """Items by row. Without ids, as in synthetic data, a row number is its own id."""

    ids: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()  # one per id, or empty; "" if unknown
    others: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # further columns, one value per id
    _rows: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Number the ids."""
        object.__setattr__(self, "_rows", {name: row for row, name in enumerate(self.ids)})
        lengths = {len(column) for column in ([self.titles] if self.titles else []) + list(self.others.values())}
        if len(self._rows) < len(self.ids):
            twice = next(name for row, name in enumerate(self.ids) if self._rows[name] != row)
            raise CatalogueError(f"the id {twice!r} is listed twice; ids must be unique")
        if lengths - {len(self.ids)}:
            raise CatalogueError("a catalogue must have one title per id; regenerate it")

    def __len__(self) -> int:
        """Return the number of items listed."""
        return len(self.ids)

    def id_of(self, row: int) -> str:
        """Return the external id of a row."""
        return self.ids[row] if self.ids else str(row)

    def title_of(self, row: int) -> str | None:
        """Return the title of a row, if it is known."""
        return (self.titles[row] or None) if self.titles else None

    def row_of(self, name: str) -> int:
        """Return the row of an external id."""
        if not self.ids and name.isascii() and name.isdecimal():
            return int(name)
        if name not in self._rows:
            known = ", ".join(self.ids[:3])
            raise CatalogueError(f"no item has the id {name!r}; ids in this catalogue look like {known or '0, 1, 2'}")
        return self._rows[name]

    def search(self, words: str) -> list[int]:
        """Return the rows whose title contains these words, in any case."""
        return [row for row, title in enumerate(self.titles) if words.casefold() in title.casefold()]

    def encode(self) -> bytes:
        """Return the content of the file."""
        text = _Text()
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow([*_FIRST, *self.others])
        titles = self.titles or ("",) * len(self.ids)
        rows.writerows(zip(range(len(self.ids)), self.ids, titles, *self.others.values(), strict=True))
        data = "".join(text).encode()
        if len(data) > LARGEST:
            raise CatalogueError(f"the catalogue is {len(data):,} bytes, over the limit of {LARGEST:,}; drop columns")
        return data

    @classmethod
    def read(cls, lines: Iterable[str], source: str = FILE) -> "Catalogue":
        """Parse the lines of a file."""
        head, *entries = read_entries(lines, source)
        columns = [*zip(*entries, strict=True)] or [()] * len(head)
        titles = columns[2] if any(columns[2]) else ()
        return cls(ids=columns[1], titles=titles, others=dict(zip(head[3:], columns[3:], strict=True)))


def digest_of(file: bytes) -> str:
    """Return the digest by which a task identifies its catalogue: the SHA-256 of the file, in hexadecimal."""
    return hashlib.sha256(file).hexdigest()


def read_entries(lines: Iterable[str], source: str = FILE) -> Iterator[list[str]]:
    """Yield the header and then each checked row of a file, in constant memory."""
    rows = csv.reader(lines)
    try:
        head = next(rows, [])
        if head[:3] != _FIRST:
            raise CatalogueError(f"{source} is not a catalogue: the first line must start with {','.join(_FIRST)}")
        yield head
        for number, row in enumerate(rows):
            yield _checked(row, number, len(head), source)
    except csv.Error:
        raise CatalogueError(f"{source} is corrupted; regenerate the catalogue") from None
    except UnicodeDecodeError:
        raise CatalogueError(f"{source} is not UTF-8; regenerate the catalogue") from None


def _checked(row: Sequence[str], number: int, width: int, source: str) -> list[str]:
    if not row or row[0] != str(number):
        raise CatalogueError(f"{source}, line {number + 2}: row {number} is missing; regenerate the catalogue")
    if len(row) != width or not row[1]:
        raise CatalogueError(f"{source}, line {number + 2} is corrupted; regenerate the catalogue")
    return list(row)


class _Text(list[str]):
    """A list of lines that `csv` can write to."""

    def write(self, line: str) -> None:
        self.append(line)
