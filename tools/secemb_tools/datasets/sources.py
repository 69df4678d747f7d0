"""A rating set from a publisher's unpacked archive, a CSV file, or the name of a downloaded set."""

from pathlib import Path

from secemb_tools.datasets.csv_file import read_table
from secemb_tools.datasets.download import ARCHIVES, FOLDER
from secemb_tools.datasets.movielens import read_movielens
from secemb_tools.datasets.ratings import RatingSet
from secemb_tools.datasets.yelp import REVIEWS, read_yelp
from secemb_tools.errors import DatasetError


def read_ratings(path: Path) -> RatingSet:
    """Return the set at this path; a name such as ml-100k is one that `secemb data fetch` has downloaded."""
    if str(path) in ARCHIVES and not path.exists():
        path = FOLDER / path
    if path.is_file():
        return read_table(path)
    if not path.is_dir():
        raise DatasetError(
            f"{path} not found; download a set with `secemb data fetch ml-100k`, or give a directory or a CSV file"
        )
    if (path / REVIEWS).is_file():
        return read_yelp(path)
    return read_movielens(path)


def read_named(name: str, path: Path) -> RatingSet:
    """Return the set at this path, which must be in the format of the named archive."""
    found = read_ratings(path)
    if path.is_file() or found.name != name.replace("-", "").upper():
        raise DatasetError(
            f"{path} contains {found.name}, not {name}; give the directory that {name} was unpacked to, "
            "or inspect any set with `secemb data show`"
        )
    return found
