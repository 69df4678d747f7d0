"""The paper's five catalogues: time and bytes of a device, and time of a server, for every construction."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

from secemb_lab.constructions import Asked, Construction, FullMatrix, Init, PathShared, Received, RowEncoded
from secemb_shared import row_access
from secemb_shared.dpf import RingArray, default_backend
from secemb_shared.layout import Geometry, Placement, plan
from secemb_tools.catalogues import WIDTH, PaperCatalogue
from secemb_tools.plan.costs import fastest
from secemb_tools.specification import direct_geometry

BATCH = 32  # sessions that a server sums together in the binned layout


CASES: tuple[tuple[str, type[Construction], bool], ...] = (
    ("SecEmb-Init, direct", Init, False),
    ("SecEmb-RowEnc, direct", RowEncoded, False),
    ("SecEmb, direct", PathShared, False),
    ("SecEmb, binned", PathShared, True),
    ("full matrix", FullMatrix, False),
)


@dataclass(frozen=True, slots=True)
class Figure:
    """The cost of one construction on one catalogue; bytes of a device are for both servers together."""

    catalogue: str
    construction: str
    slots: int
    depth: int
    place_ms: float
    device_ms: float
    upload_bytes: int
    download_bytes: int
    answer_ms: float
    add_ms: float


def measure(console: Console, chosen: list[PaperCatalogue], seconds: float) -> list[dict[str, Any]]:
    """Measure every construction on every chosen catalogue."""
    cases = [(catalogue, case) for catalogue in chosen for case in CASES]
    steps = track(cases, "constructions on the catalogues", console=console, transient=True)
    return [asdict(_figure(catalogue, *case, seconds / 4)) for catalogue, case in steps]


def _figure(catalogue: PaperCatalogue, name: str, kind: type[Construction], binned: bool, seconds: float) -> Figure:
    round_ = catalogue.round(_geometry(catalogue, binned=binned), norm_bound=0)  # the paper's devices make no proof
    case = Case(kind(round_, default_backend()), catalogue)
    times = fastest(
        {"place": case.place, "device": case.device, "answer": case.answer, "add": case.add},
        seconds,
        turns=1 if kind is Init else 2,
    )
    geometry = round_.task.geometry
    return Figure(
        catalogue=catalogue.name,
        construction=name,
        slots=geometry.slots,
        depth=geometry.depth,
        place_ms=times["place"] * 1e3,
        device_ms=times["device"] * 1e3,
        upload_bytes=case.uploaded,
        download_bytes=case.downloaded,
        answer_ms=times["answer"] * 1e3,
        add_ms=times["add"] / case.batch * 1e3,
    )


def _geometry(catalogue: PaperCatalogue, *, binned: bool) -> Geometry:
    if binned:
        return plan(items=catalogue.items, capacity=catalogue.capacity, row_width=WIDTH).geometry
    return direct_geometry(catalogue.items, catalogue.capacity)


class Case:
    """One construction on one catalogue, with a device that has the most items."""

    def __init__(self, scheme: Construction, catalogue: PaperCatalogue) -> None:
        rng = np.random.default_rng(0)
        round_ = scheme.round
        self._scheme, self._round = scheme, round_
        self._items = rng.choice(catalogue.items, catalogue.capacity, replace=False).astype(np.int64)
        self._placement: Placement = round_.layout.place(self._items)
        slots = round_.task.geometry.slots
        self._payload: RingArray = rng.integers(0, 2**32, (slots, WIDTH), dtype=np.uint32)
        self._payload[self._placement.items < 0] = 0
        table = rng.normal(size=(catalogue.items, WIDTH)).astype(np.float32)
        self._tagged = row_access.tag_rows(round_, table)
        self._sums = row_access.empty_sums(round_)
        self._asked, updates = self._share()
        self.batch = BATCH if round_.task.geometry.bins > 1 else 1
        self._received = [Received(self._asked.session_id, self._asked.requests[1], updates[1])] * self.batch
        self.uploaded = sum(map(len, self._asked.requests)) + sum(map(len, updates))
        self.downloaded = sum(len(self._answer(party)) for party in (0, 1))

    def place(self) -> Placement:
        """Place the device's items."""
        return self._round.layout.place(self._items)

    def device(self) -> object:
        """Make keys and update messages: the device's secret sharing."""
        return self._share()

    def answer(self) -> object:
        """Answer one session's read, as one server does."""
        return self._answer(1)

    def add(self) -> object:
        """Add a batch of updates to the sums, as one server does."""
        return self._scheme.add(1, self._received, self._sums)

    def _share(self) -> tuple[Asked, tuple[bytes, bytes]]:
        asked = self._scheme.ask(self._placement)
        return asked, self._scheme.write(asked, self._payload)

    def _answer(self, party: int) -> bytes:
        return self._scheme.answer(party, self._asked.session_id, self._asked.requests[party], self._tagged)
