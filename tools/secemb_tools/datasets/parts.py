"""The two parts of a set as files."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from secemb_tools.datasets.errors import DatasetError
from secemb_tools.datasets.ratings import RatingSet, Split, split, split_leave_one_out, split_per_user


def write_split(ratings: RatingSet, out: Path, *, how: str, seed: int, test_share: float) -> dict[str, object]:
    """Write train.csv and test.csv, and return how many ratings each has."""
    ways: dict[str, Callable[[RatingSet], Split]] = {
        "random": partial(split, seed=seed, test_share=test_share),
        "per-user": partial(split_per_user, seed=seed, test_share=test_share),
        "leave-one-out": partial(split_leave_one_out, seed=seed),
    }
    if out.exists():
        raise DatasetError(f"{out} exists and is not overwritten; name another --out")
    parts = ways[how](ratings)
    out.mkdir(parents=True)
    for name, part in (("train", parts.train), ("test", parts.test)):
        _write(out / f"{name}.csv", part)
    return {"how": how, "seed": seed, "train": parts.train.values.size, "test": parts.test.values.size, "out": str(out)}


def _write(path: Path, part: RatingSet) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write("user,item,rating\n")
        for person, item, value in zip(part.people.tolist(), part.items.tolist(), part.values.tolist(), strict=True):
            file.write(f"{person},{item},{value:g}\n")
