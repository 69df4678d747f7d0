"""The table of uploads of protocols that omit zeros, compared with SecEmb, which hides what it omits."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from secemb_lab.paper.paper_table import Body, Cell, Progress, Settings, table
from secemb_lab.paper.protocols import kvsagg, secaggmask, topksecagg
from secemb_lab.paper.protocols.cases import NUMBER, Case, cases, count
from secemb_lab.paper.protocols.communication import MEGA, sizes_of
from secemb_shared.dpf import RingArray
from secemb_shared.randomness import Indices
from secemb_tools.datasets import read_ratings, split

COHORT = 100
LABEL = "tab:commucostsparse"
FOLDERS = {"ML100K": "ml-100k", "ML1M": "ml-1m", "ML10M": "ml-10m", "ML25M": "ml-25m", "Yelp": "yelp"}
_SEED = 1


@table("sparse", title="Upload of sparse aggregation", night_seconds=240)
def sparse(settings: Settings, progress: Progress) -> Body:
    """Encode the upload of a device in each protocol."""
    cells: list[Cell] = []
    for number, case in enumerate(cases(settings)):
        progress(number / count(settings), f"{case.title} on {case.catalogue.name}")
        cells += _cells(case, settings)
    return Body(
        caption=f"Bytes that a device uploads in a round of {COHORT}. SecAggMask: an update of m' items, with 60 % of "
        "all coordinates masked. TopkSecAgg and Kvsagg: the union of the items of 100 people drawn from the set's "
        f"training part (μ = {topksecagg.PERTURBED}; {kvsagg.EXPANSION} cells an item). SecEmb is relayed and binned, "
        "with all its checks. The first three leak items, values or counts to the server, as tests show.",
        cells=cells,
    )


def _cells(case: Case, settings: Settings) -> list[Cell]:
    sizes = sizes_of(case)
    items = items_of_cohort(settings.data / FOLDERS[case.catalogue.name], case.catalogue.capacity)
    rows: list[tuple[str, float | None, str]] = [
        ("General SecAgg", sizes.whole[0], "Two additive shares of the whole update, with four bytes per number."),
        ("SecAggMask", secaggmask_bytes(case), _mask_note(case)),
        ("TopkSecAgg", None if items is None else topk_bytes(case, items), _topk_note(items)),
        ("Kvsagg", None if items is None else kvsagg_bytes(case, items), _kvsagg_note(items)),
        ("SecEmb", sizes.binned.relayed[0], "This includes the norm proof and the check of keys."),
    ]
    return [
        Cell(
            row=f"{case.title}, {name}",
            column=case.catalogue.name,
            ours=None if size is None else size / MEGA,
            paper=case.printed(LABEL, name),
            unit="MB",
            better="less" if name == "SecEmb" else "",
            note=note,
        )
        for name, size, note in rows
    ]


@cache
def items_of_cohort(path: Path, capacity: int) -> tuple[Indices, ...] | None:
    """Return the items of people drawn from a set's training part, at most `capacity` each; None without the set."""
    if not path.is_dir():
        return None
    train = split(read_ratings(path, quiet=True), seed=_SEED).train
    rng = np.random.default_rng(_SEED)
    people = rng.permutation(np.unique(train.people))[:COHORT]
    return tuple(rng.permutation(train.items[train.people == person])[:capacity] for person in people)


@cache
def secaggmask_bytes(case: Case) -> int:
    """Encode one device's message in a round with 99 others, whose keys alone it needs."""
    width, catalogue = case.model.row_width, case.catalogue
    vector: RingArray = np.zeros(case.numbers, np.uint32)
    chosen = np.linspace(0, catalogue.items - 1, catalogue.capacity).astype(np.int64)
    vector[: catalogue.items * width].reshape(-1, width)[chosen] = 1
    vector[catalogue.items * width :] = 1
    secrets = [X25519PrivateKey.generate() for _ in range(COHORT)]
    keys = {number: one.public_key().public_bytes_raw() for number, one in enumerate(secrets)}
    return len(secaggmask.encode(0, keys, secrets[0], vector))


def topk_bytes(case: Case, items: Sequence[Indices]) -> float:
    """Return the average upload of a device: its names, and the masked rows of the union."""
    names = [topksecagg.name(one, catalogue=case.catalogue.items) for one in items]
    union, dense = topksecagg.union_of(names).size, case.model.dense_size
    sent = [topksecagg.upload_bytes(one, rows=union, width=case.model.row_width, dense=dense) for one in names]
    return sum(sent) / len(sent)


def kvsagg_bytes(case: Case, items: Sequence[Indices]) -> int:
    """Encode one device's table in the size that the union needs, and return its bytes with the dense part's."""
    part = kvsagg.part_of(np.unique(np.concatenate(items)).size)
    rows: RingArray = np.ones((items[0].size, case.model.row_width), np.uint32)
    return len(kvsagg.encode(items[0], rows, part=part, salt=1).tobytes()) + NUMBER * case.model.dense_size


def _mask_note(case: Case) -> str:
    bits = "The server also learns which coordinates are sent, one bit for each, and rows include their bias"
    if case.name == "deepfm":
        return f"{bits}; the dense part is sent once, to the only server, and the paper counts it twice."
    return f"{bits}; the paper counts 60 % of the embeddings' numbers and 40 % of the update's alone."


def _topk_note(items: Sequence[Indices] | None) -> str:
    if items is None:
        return "The union needs the set's own ratings, and the set is not in the folder of sets."
    union = np.unique(np.concatenate(items)).size
    return (
        f"The items of the {COHORT} people drawn here are {union:,}, without the tenth that each adds; the paper does "
        "not say which people it drew, and counts the dense part twice, for one server."
    )


def _kvsagg_note(items: Sequence[Indices] | None) -> str:
    if items is None:
        return "The union needs the set's own ratings, and the set is not in the folder of sets."
    return (
        f"{kvsagg.EXPANSION} cells for each item of the union can be read, as a test shows; the paper's figures are "
        "3.7 times its own of TopkSecAgg, and it does not say how large its tables are."
    )
