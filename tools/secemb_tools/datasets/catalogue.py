"""Catalogue files: as written by `secemb data`, or made from any list of items that it reads."""

from pathlib import Path

from secemb_shared.catalogue import Catalogue
from secemb_tools.errors import DatasetError

_HEAD = b"row,id,title"
_BOM = b"\xef\xbb\xbf"


def write_catalogue(catalogue: Catalogue, path: Path) -> None:
    """Write a catalogue as one file."""
    path.write_bytes(catalogue.encode())


def read_catalogue(path: Path) -> Catalogue:
    """Return the catalogue of a file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return Catalogue.read(file, str(path))
    except OSError:
        raise DatasetError(f"{path} cannot be read; give a catalogue written by `secemb data`") from None


def catalogue_from(path: Path) -> Catalogue:
    """Return the catalogue in a file, or of any list of items, with rows numbered in the order of the list."""
    try:
        with path.open("rb") as file:
            start = file.read(len(_BOM + _HEAD))
    except OSError:
        raise DatasetError(f"{path} cannot be read; give a catalogue, or a list of items with a header") from None
    if start.removeprefix(_BOM).startswith(_HEAD):
        return read_catalogue(path)
    from secemb_tools.datasets.item_list import read_items  # imported here because polars is slow to import

    listed = read_items(path)
    return Catalogue(ids=listed.ids, titles=listed.titles, others=listed.others)
