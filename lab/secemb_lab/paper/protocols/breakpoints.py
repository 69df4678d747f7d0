"""The table of the largest m' at which SecEmb still uploads less than full-matrix sharing."""

from collections.abc import Callable
from math import log2

from secemb_lab.paper.paper_table import Body, Cell, Progress, Settings, table
from secemb_lab.paper.printed import printed
from secemb_lab.paper.protocols.cases import NUMBER
from secemb_shared.messages import Sizes
from secemb_tools.catalogues import CATALOGUES, PaperCatalogue
from secemb_tools.specification import direct_geometry

DIMENSIONS = (64, 128, 512)
_SECURITY, _BITS = 128, 32  # λ and b
_SLIP = "The paper's figure is 0.6·m, which does not follow from its inequality; the other cells do."


def by_formula(items: int, dimension: int) -> int:
    """Return the largest m' below m·b·d / ((λ + 2)·log m + b·d), the paper's inequality."""
    row = _BITS * dimension
    return int(items * row / ((_SECURITY + 2) * log2(items) + row))


def by_messages(items: int, dimension: int, uploaded: Callable[[Sizes], int]) -> int:
    """Return the largest m' whose encoded messages are shorter than two shares of the whole update."""
    width = dimension + 1
    whole = 2 * NUMBER * items * width

    def shorter(capacity: int) -> bool:
        catalogue = PaperCatalogue("breakpoint", items, capacity)
        task = catalogue.round(direct_geometry(items, capacity), row_width=width, norm_bound=0).task
        return uploaded(Sizes.of(task)) < whole

    low, high = 1, items
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if shorter(middle) else (low, middle - 1)
    return low


@table("breakpoint", title="Breakpoint of the upload", night_seconds=1)
def breakpoint_table(settings: Settings, progress: Progress) -> Body:
    """Compute the breakpoints by the paper's inequality and from encoded messages."""
    ways: dict[str, Callable[[Sizes], int]] = {
        "messages to both servers": lambda sizes: sizes.upload,
        "messages, relayed": lambda sizes: sizes.relayed_upload,
    }
    cells = []
    for number, dimension in enumerate(DIMENSIONS):
        progress(number / len(DIMENSIONS), f"d = {dimension}")
        for catalogue in CATALOGUES:
            paper = printed("tab:breakpoint", f"d={dimension}", catalogue.name)
            row, column, items = f"d = {dimension}", catalogue.name, catalogue.items
            formula = by_formula(items, dimension)
            cells.append(Cell(row=f"{row}, inequality", column=column, ours=formula, paper=paper, note=_SLIP))
            for name, uploaded in ways.items():
                ours = by_messages(items, dimension, uploaded)
                note = (
                    "Keys include 48 bytes for the check that each writes at most one row, trees have "
                    "whole levels, and "
                    "rows their bias."
                )
                cells.append(
                    Cell(row=f"{row}, {name}", column=column, ours=ours, paper=paper, better="more", note=note)
                )
    return Body(
        caption="The largest m' at which SecEmb in the paper's layout uploads less than two shares of the whole item "
        "table, with λ = 128 and numbers of 32 bits: by the paper's inequality, and by the lengths of messages.",
        cells=cells,
    )
