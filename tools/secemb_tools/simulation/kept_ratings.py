"""The ratings of a kept run, beside its state: what it needs to go on wherever the set came from."""

import io
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from secemb_sdk.home.files import write_file
from secemb_shared.catalogue import FILE as CATALOGUE
from secemb_shared.catalogue import Catalogue
from secemb_tools.datasets import RatingSet
from secemb_tools.datasets.catalogue import read_catalogue
from secemb_tools.errors import RunError

FILE = "ratings.npz"
_ARRAYS = ("people", "items", "values", "user_features", "item_features")


def keep_ratings(folder: Path, ratings: RatingSet) -> None:
    """Write a set, once."""
    if (folder / FILE).exists():
        return
    file = io.BytesIO()
    arrays = {name: getattr(ratings, name) for name in _ARRAYS}
    facts = [ratings.name, ratings.layout, ratings.kind or "", "implicit" if ratings.implicit else ""]
    np.savez_compressed(file, **arrays, user_ids=np.array(ratings.user_ids, dtype=np.str_), facts=np.array(facts))
    if len(ratings.catalogue):
        write_file(folder / CATALOGUE, ratings.catalogue.encode())
    write_file(folder / FILE, file.getvalue())


def read_kept(folder: Path) -> RatingSet:
    """Return the ratings of a run."""
    path = folder / FILE
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as file:
            name, layout, kind, implicit = file["facts"].tolist()
            return RatingSet(
                name=name,
                layout=layout,
                kind=kind or None,
                implicit=bool(implicit),
                user_ids=tuple(file["user_ids"].tolist()),
                catalogue=read_catalogue(folder / CATALOGUE) if (folder / CATALOGUE).exists() else Catalogue(),
                **{name: file[name] for name in _ARRAYS},
            )
    except (OSError, ValueError, KeyError, BadZipFile):
        raise RunError(f"{path} is damaged; remove the run and simulate it again") from None
