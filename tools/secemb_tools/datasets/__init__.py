"""Public rating sets, read from the user's copy: their licences do not allow distributing them with this project."""

from secemb_tools.datasets.movielens import read_movielens
from secemb_tools.datasets.ratings import RatingSet, Split, split, split_leave_one_out, split_per_user
from secemb_tools.datasets.sources import read_ratings
from secemb_tools.errors import DatasetError

__all__ = [
    "DatasetError",
    "RatingSet",
    "Split",
    "read_movielens",
    "read_ratings",
    "split",
    "split_leave_one_out",
    "split_per_user",
]
