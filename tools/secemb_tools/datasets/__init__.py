"""Rating sets, read from the user's copy, because licences do not allow distributing public ones with this project."""

from secemb_shared.catalogue import Catalogue
from secemb_tools.datasets.ratings import RatingSet
from secemb_tools.datasets.sources import read_movielens, read_ratings
from secemb_tools.datasets.splits import (
    Split,
    split,
    split_by,
    split_by_time,
    split_given,
    split_leave_last_out,
    split_per_user,
)
from secemb_tools.errors import DatasetError

__all__ = [
    "Catalogue",
    "DatasetError",
    "RatingSet",
    "Split",
    "read_movielens",
    "read_ratings",
    "split",
    "split_by",
    "split_by_time",
    "split_given",
    "split_leave_last_out",
    "split_per_user",
]
