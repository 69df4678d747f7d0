"""The table and figure of the time that a device needs to make its secret shares."""

from collections.abc import Iterator, Mapping

import numpy as np

from secemb_lab.constructions import PathShared
from secemb_lab.paper.paper_table import Body, Cell, Plot, Progress, Settings, table
from secemb_lab.paper.protocols.cases import Case, Work, cases, count, processor_seconds
from secemb_lab.paper.protocols.communication import STEPS
from secemb_shared.dpf import RingArray, default_backend

WHOLE, BINNED, RATIO = "Secure FedRec", "SecEmb, binned", "Secure FedRec / SecEmb"
_SECONDS = 1.0  # of each case
LABEL = "tab:ablationcomp"


@table("computation", title="User computation: shares, and their ablation", night_seconds=60)
def computation(settings: Settings, progress: Progress) -> Body:
    """Time the secret sharing of a device in every construction."""
    cells: list[Cell] = []
    lines: dict[str, list[tuple[float, float]]] = {}
    for number, case in enumerate(cases(settings)):
        progress(number / count(settings), f"{case.title} on {case.catalogue.name}")
        took = milliseconds(case, 0.02 if settings.quick else _SECONDS)
        cells += _cells(case, took)
        for name in (WHOLE, "SecEmb", BINNED):
            lines.setdefault(f"{case.title}, {name}", []).append((float(case.catalogue.items), took[name]))
    return Body(
        caption="Milliseconds of processor time in which a device makes all its keys and shares of a round: the "
        "paper's figure of user computation time and its table of the ablation. Init, RowEnc and SecEmb are in the "
        "paper's layout; binned is this software's. Placement, training and the norm proof are not in it. Secure "
        "FedRec shares into buffers that exist already.",
        cells=cells,
        plots=[
            Plot(
                title=f"{title}: ms for the shares, by items",
                across="items",
                lines={name: points for name, points in lines.items() if name.startswith(f"{title},")},
                doubling=True,
            )
            for title in dict.fromkeys(name.partition(",")[0] for name in lines)
        ],
    )


def milliseconds(case: Case, seconds: float) -> dict[str, float]:
    """Return the time of each construction."""
    works: dict[str, Work] = {name: case.device(kind).share for name, kind in STEPS.items()}
    works |= {WHOLE: full_matrix(case), BINNED: case.device(PathShared, binned=True).share}
    return {name: 1e3 * one for name, one in processor_seconds(works, seconds).items()}


def full_matrix(case: Case) -> Work:
    """Return the sharing of a whole update into existing buffers: new memory would add page faults."""
    values: RingArray = np.ones(case.numbers, np.uint32)
    mask, share = np.zeros_like(values), np.zeros_like(values)
    key, backend = bytes(16), default_backend()

    def share_all() -> object:
        mask.fill(0)
        backend.add_stream(key, mask, negative=False)
        return np.subtract(values, mask, out=share)

    return share_all


def _cells(case: Case, took: Mapping[str, float]) -> Iterator[Cell]:
    row, column = case.title, case.catalogue.name
    machine = f"Another processor and another program: here AES and sums run in the kernel ({default_backend().name})"
    notes = {
        WHOLE: f"{machine}, into buffers that exist already: fresh memory would take several times as long.",
        "SecEmb-Init": f"{machine}; it makes a key for every number, not for every row.",
    }
    for name, ours in took.items():
        step = "SecEmb" if name == BINNED else name
        yield Cell(
            row=f"{row}, {name}",
            column=column,
            ours=ours,
            paper=case.printed(LABEL, step),
            unit="ms",
            better="less" if step == "SecEmb" else "",
            note=notes.get(name, f"{machine}."),
        )
    full, short = (case.printed(LABEL, name) for name in (WHOLE, "SecEmb"))
    for name in ("SecEmb", BINNED):
        yield Cell(
            row=f"{row}, {RATIO}{', binned' if name == BINNED else ''}",
            column=column,
            ours=took[WHOLE] / took[name],
            paper=None if full is None or short is None else full / short,
            better="more",
            note=_RATIO_NOTE,
        )


_RATIO_NOTE = (
    "Sharing the whole update is one pass over memory with this kernel, on the smaller sets in the caches, while "
    "SecEmb's time has the fixed cost of its messages and of the check of keys in it."
)
