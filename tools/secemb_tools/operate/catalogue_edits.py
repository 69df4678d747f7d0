"""Edits of a task's catalogue: items are added, changed or retired, and row numbers follow."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import TypedDict

from secemb_sdk.home.files import write_file
from secemb_shared.catalogue import Catalogue, digest_of
from secemb_tools.datasets.catalogue import catalogue_from
from secemb_tools.errors import OperationError

_MOST_RETIRED = 0.5  # share of a catalogue; more in one edit is rather a mistake


class CatalogueFacts(TypedDict):
    """A catalogue file."""

    file: str
    catalogue: str  # its digest, as in the task
    items: int
    bytes: int
    columns: list[str]


class CatalogueEdit(TypedDict):
    """What an edit did."""

    file: str
    catalogue: str
    items: int
    added: int
    changed: int
    retired: int


class ItemDifference(TypedDict):
    """One item that is not the same in two catalogues."""

    id: str
    what: str  # added, changed or retired
    title: str


@dataclass(frozen=True, slots=True)
class Difference:
    """The ids that differ between two catalogues."""

    added: list[str]
    changed: list[str]
    retired: list[str]


def compare(old: Catalogue, new: Catalogue) -> Difference:
    """Return the ids that were added, changed or retired, in the order of the catalogues."""
    entries = {name: _entry(old, row) for row, name in enumerate(old.ids)}
    mine = set(new.ids)
    return Difference(
        added=[name for name in new.ids if name not in entries],
        changed=[name for row, name in enumerate(new.ids) if name in entries and entries[name] != _entry(new, row)],
        retired=[name for name in old.ids if name not in mine],
    )


def describe(path: Path) -> CatalogueFacts:
    """Return the facts of a catalogue."""
    found = _read(path)
    data = found.encode()
    return {
        "file": str(path),
        "catalogue": digest_of(data),
        "items": len(found),
        "bytes": len(data),
        "columns": ["id", "title", *found.others],
    }


def differences(old: Path, new: Path) -> list[ItemDifference]:
    """Return every item that is not the same in two files."""
    before, after = _read(old), _read(new)
    found = compare(before, after)
    titles = {name: before.title_of(row) for row, name in enumerate(before.ids)}
    titles |= {name: after.title_of(row) for row, name in enumerate(after.ids)}
    kinds = {"added": found.added, "changed": found.changed, "retired": found.retired}
    return [{"id": name, "what": what, "title": titles[name] or ""} for what, names in kinds.items() for name in names]


def add(path: Path, items: Path, out: Path | None) -> CatalogueEdit:
    """Add the items of a file; known ids get the title and the columns that the file has now."""
    old, listed = _read(path), catalogue_from(items)
    return _store(old, merge(old, listed), out or path)


def merge(old: Catalogue, listed: Catalogue) -> Catalogue:
    """Return a catalogue with the listed items: known ones stay in their place, new ones follow in the given order."""
    entries = {name: _entry(old, row) for row, name in enumerate(old.ids)}
    for row, name in enumerate(listed.ids):
        columns, title = listed.others, listed.title_of(row) or ""
        before = entries.get(name, ("", *("" for _ in old.others)))
        kept = zip(old.others, before[1:], strict=True)
        entries[name] = (title or before[0], *(columns[one][row] if one in columns else value for one, value in kept))
    titles, *others = zip(*entries.values(), strict=True)
    named = dict(zip(old.others, others, strict=True))
    return Catalogue(ids=tuple(entries), titles=titles if any(titles) else (), others=named)


def retire(path: Path, ids: Collection[str], out: Path | None, *, force: bool = False) -> CatalogueEdit:
    """Remove items; every id must be listed."""
    old = _read(path)
    for name in ids:
        old.row_of(name)  # raises for an unknown one
    gone = set(ids)
    if not force and len(gone) > _MOST_RETIRED * len(old):
        raise OperationError(
            f"this would retire {len(gone):,} of {len(old):,} items; add --force if that is what you want"
        )
    kept = [row for row, name in enumerate(old.ids) if name not in gone]
    if not kept:
        raise OperationError("a catalogue needs at least one item")

    def pick(column: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(column[row] for row in kept)

    titles = pick(old.titles) if old.titles else ()
    new = Catalogue(ids=pick(old.ids), titles=titles, others={name: pick(one) for name, one in old.others.items()})
    return _store(old, new, out or path)


def read_ids(path: Path) -> list[str]:
    """Return the ids in a file: the first column of a list of items, or one id on each line."""
    text = path.read_text(encoding="utf-8-sig")
    first = text.partition("\n")[0]
    if "," in first or "\t" in first:
        return list(catalogue_from(path).ids)
    return [line.strip() for line in text.splitlines() if line.strip()]


def _entry(catalogue: Catalogue, row: int) -> tuple[str, ...]:
    return (catalogue.title_of(row) or "", *(column[row] for column in catalogue.others.values()))


def _read(path: Path) -> Catalogue:
    found = catalogue_from(path)
    if not len(found):
        raise OperationError(f"{path} lists no items")
    return found


def _store(old: Catalogue, new: Catalogue, out: Path) -> CatalogueEdit:
    found, data = compare(old, new), new.encode()
    write_file(out, data)
    return {
        "file": str(out),
        "catalogue": digest_of(data),
        "items": len(new),
        "added": len(found.added),
        "changed": len(found.changed),
        "retired": len(found.retired),
    }
