"""Tables of bytes: upload, download, and the ablation. All are lengths of messages that were encoded here."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from math import log2

import numpy as np

from secemb_lab.constructions import Construction, FullMatrix, Init, PathShared, RowEncoded
from secemb_lab.paper.paper_table import Body, Cell, Plot, Progress, Settings, table
from secemb_lab.paper.protocols.cases import NUMBER, Case, cases, count
from secemb_lab.report.quality_ratings import SessionBytes
from secemb_lab.report.sequences_cost import encoded_bytes
from secemb_sdk.round.session import DeviceSession

MEGA = 1e6
_CHECKED = (
    "The servers check that a key writes at most one row, at 48 bytes per slot and server, and that an "
    "update is short, with a proof of a few kilobytes, which the paper's protocol does not do"
)
_DIRECT = f"{_CHECKED}; without that the messages have the paper's size."
_ONE_SHARE = "Server 1's share of the dense part follows from a seed of 16 bytes here, and the paper sends both shares."
_BIAS = "The paper leaves out each item's bias here, one number of a row."
_FEATURES = (
    "The paper's figure is that of a model with one more number for each item and feature, (l_x + l_y)·m numbers, "
    "which its own table of parameters does not have"
)


@dataclass(frozen=True, slots=True)
class Sizes:
    """The bytes of a device's round in one case."""

    case: Case
    direct: SessionBytes  # the paper's layout, on both ways to travel
    binned: SessionBytes  # the product's
    whole: tuple[int, int]  # Secure FedRec, up and down


@cache
def sizes_of(case: Case) -> Sizes:
    """Encode the messages of a session in both layouts, and Secure FedRec's."""
    shared = case.device(FullMatrix).share()
    return Sizes(case, _session(case, binned=False), _session(case, binned=True), (shared, NUMBER * case.numbers))


def _session(case: Case, *, binned: bool) -> SessionBytes:
    round_ = case.round(binned=binned)
    task = round_.task
    items = np.linspace(0, task.items - 1, task.capacity).astype(np.int64)
    session = DeviceSession(round_, items)
    session.write(items, np.full((items.size, task.row_width), 2.0**-10), np.zeros(task.dense_size))
    return encoded_bytes(session)


def _all_sizes(settings: Settings, progress: Progress) -> list[Sizes]:
    found = []
    for number, case in enumerate(cases(settings)):
        progress(number / count(settings), f"{case.title} on {case.catalogue.name}")
        found.append(sizes_of(case))
    return found


@table("upload", title="Upload", night_seconds=40)
def upload(settings: Settings, progress: Progress) -> Body:
    """Measure what a device sends in a round."""
    found = _all_sizes(settings, progress)
    cells = [cell for one in found for cell in _cells(one, "tab:upcommucost", "SecFedRec", "Red. Ratio", 0)]
    return Body(
        caption="Bytes that a device sends in a round, to both servers together. Direct layout is the paper's: m' keys "
        "over the whole catalogue. Binned is this software's: a key over each bin. Relayed: also binned, and through "
        "server 0 alone, which is the default. Every row of SecEmb is compared with the paper's figure for SecEmb.",
        cells=cells,
        plots=[_plot(found, 0, "MB up, by number of items")],
    )


@table("download", title="Download", night_seconds=40)
def download(settings: Settings, progress: Progress) -> Body:
    """Measure what a device receives in a round."""
    found = _all_sizes(settings, progress)
    cells = [cell for one in found for cell in _cells(one, "tab:downcommucost", "Secure FedRec", "Reduction Ratio", 1)]
    return Body(
        caption="Bytes that a device receives in a round, from both servers together: a row and its tag of 4 bytes for "
        "each slot, and the dense part. The product's devices download the dense part once, from server 0.",
        cells=cells,
        plots=[_plot(found, 1, "MB down, by number of items")],
    )


def _cells(one: Sizes, label: str, whole: str, ratio: str, way: int) -> Iterator[Cell]:
    case, title, column = one.case, one.case.title, one.case.catalogue.name
    paper, ours = case.printed(label, "SecEmb"), one.whole[way] / MEGA
    yield Cell(
        row=f"{title}, Secure FedRec",
        column=column,
        ours=ours,
        paper=case.printed(label, whole),
        unit="MB",
        note=_whole_note(case, way),
    )
    rows = {
        "SecEmb, direct layout": one.direct.direct[way],
        "SecEmb, binned": one.binned.direct[way],
        "SecEmb, relayed": one.binned.relayed[way],
    }
    for name, size in rows.items():
        note = _session_note(case, name, way)
        yield Cell(
            row=f"{title}, {name}", column=column, ours=size / MEGA, paper=paper, unit="MB", better="less", note=note
        )
    yield Cell(
        row=f"{title}, reduction, relayed",
        column=column,
        ours=one.whole[way] / one.binned.relayed[way],
        paper=case.printed(label, ratio),
        better="more",
        note=f"{_FEATURES}; here the whole model is the item table and the dense part.",
    )


def _whole_note(case: Case, way: int) -> str:
    if way == 1 and case.name in ("fm", "deepfm"):
        return f"{_FEATURES}; ours is the item table and the dense part."
    return _BIAS


def _session_note(case: Case, name: str, way: int) -> str:
    if way == 0:
        return _DIRECT
    if name != "SecEmb, direct layout":
        return (
            "Each row has its bias and a tag of 4 bytes here, and the binned layout has about a tenth more slots than "
            "m', so that almost every item can be placed; in return a server's work is many times less."
        )
    if case.name == "fm":
        return "The paper's figure is less than m' rows and the dense part of its own table of parameters together."
    return "Each row has its bias and a tag of 4 bytes here, and the paper prints two digits."


def _plot(found: list[Sizes], way: int, title: str) -> Plot:
    lines: dict[str, list[tuple[float, float]]] = {}
    for one in found:
        if one.case.name == "mf":
            items = float(one.case.catalogue.items)
            lines.setdefault("MF, SecEmb, relayed", []).append((items, one.binned.relayed[way] / MEGA))
            lines.setdefault("direct layout", []).append((items, one.direct.direct[way] / MEGA))
            lines.setdefault("Secure FedRec", []).append((items, one.whole[way] / MEGA))
    return Plot(title=title, across="items", lines=lines, doubling=True)


STEPS: Mapping[str, type[Construction]] = {
    "Secure FedRec": FullMatrix,
    "SecEmb-Init": Init,
    "SecEmb-RowEnc": RowEncoded,
    "SecEmb": PathShared,
}


@table("ablation", title="Ablation: upload", night_seconds=30)
def ablation(settings: Settings, progress: Progress) -> Body:
    """Measure what each step of the paper saves of the upload."""
    cells = []
    for number, case in enumerate(cases(settings)):
        progress(number / count(settings), f"{case.title} on {case.catalogue.name}")
        for name, kind in STEPS.items():
            cells.append(
                Cell(
                    row=f"{case.title}, {name}",
                    column=case.catalogue.name,
                    ours=case.device(kind).share() / MEGA,
                    paper=case.printed("tab:ablationcommun", name),
                    unit="MB",
                    better="less" if name == "SecEmb" else "",
                    note=_step_note(case, name),
                )
            )
    return Body(
        caption="Bytes that a device sends in a round to both servers, in the paper's layout and without the norm "
        "proof, for the paper's steps: a key for every number (Init), a key for every row (RowEnc), and one path for "
        "reading and writing (SecEmb). The MF rows are also the paper's Table 4.",
        cells=cells,
    )


def _step_note(case: Case, name: str) -> str:
    if name == "Secure FedRec":
        return _BIAS
    dense = f"{_ONE_SHARE} " if case.name == "deepfm" else ""
    if name != "SecEmb-Init":
        return f"{dense}Each key has 48 more bytes, with which the servers check that it writes at most one row."
    items = case.catalogue.items
    return (
        f"{dense}A tree has {case.geometry(binned=False).depth} levels here, where the paper counts log2 m = "
        f"{log2(items):.1f}, and each key for reading has 48 more bytes, with which the servers check it."
    )
