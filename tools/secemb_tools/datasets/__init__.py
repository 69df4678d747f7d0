"""Public rating sets, read from where a user keeps them: their licences forbid that they travel with this project."""

from secemb_tools.datasets.movielens import DatasetError, read_movielens
from secemb_tools.datasets.ratings import RatingSet, Split, split

__all__ = ["DatasetError", "RatingSet", "Split", "read_movielens", "split"]
