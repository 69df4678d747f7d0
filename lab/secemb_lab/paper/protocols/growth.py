"""The table of complexity: the measured growth of costs when a size doubles, compared with the paper's O(·)."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import log2

import numpy as np

from secemb_lab.constructions import FullMatrix, PathShared
from secemb_lab.paper.paper_table import Body, Cell, Progress, Settings, table
from secemb_lab.paper.printed import printed
from secemb_lab.paper.protocols import secagg
from secemb_lab.paper.protocols.cases import Device, processor_seconds
from secemb_shared import row_access
from secemb_shared.dpf import default_backend
from secemb_shared.messages import Sizes
from secemb_tools.catalogues import PaperCatalogue
from secemb_tools.specification import direct_geometry

COLUMNS = ("server computation", "server communication", "client computation", "client communication")
USERS, NUMBERS = 12, 200_000
ITEMS, CAPACITY, WIDTH = 4096, 256, 65
_SECURITY, _BITS = 128, 32
_TURNS = 7
_TIME = (
    "A time, with parts that do not grow like that: key agreements, calls, and memory that no longer fits into a cache."
)


@dataclass(frozen=True, slots=True)
class Costs:
    """Server's and one client's seconds and bytes, in the order of the columns."""

    figures: tuple[float, float, float, float]


def secagg_costs(users: int, numbers: int) -> Costs:
    """Run SecAgg in which a quarter of the users drop out; return the fastest of a few rounds."""
    vectors = {user: np.full(numbers, user, np.uint32) for user in range(1, users + 1)}
    silent = range(1, users // 4 + 1)
    runs = [secagg.run(vectors, threshold=users // 2, silent=silent) for _ in range(_TURNS)]
    client = users  # the last one stays
    return Costs(
        (
            min(one.server.seconds for one in runs),
            runs[0].server.received,
            min(one.clients[client].seconds for one in runs),
            runs[0].clients[client].sent,
        )
    )


def sharing_costs(users: int, numbers: int) -> Costs:
    """Share and add a vector of this many numbers between two servers, for each user."""
    items = numbers // WIDTH
    round_ = PaperCatalogue("growth", items, 1).round(direct_geometry(items, 1), row_width=WIDTH, norm_bound=0)
    device, scheme = Device(round_, FullMatrix), FullMatrix(round_, default_backend())
    received, sums = device.received(1), row_access.empty_sums(round_)
    best = processor_seconds({"client": device.share, "server": lambda: scheme.add(1, [received] * users, sums)}, 0.2)
    sent = device.share()
    return Costs((best["server"], users * len(received.update), best["client"], sent))


@dataclass(frozen=True, slots=True)
class _Doubled:
    """A protocol of the paper's table of secure aggregation: measured, and by O(·) with all constants one."""

    name: str
    label: str
    measure: Callable[[int, int], Costs]
    formulas: tuple[Callable[[int, int], float], ...]
    rounds: int


_SECAGG = (
    lambda n, size: n * n * size,
    lambda n, size: n * size + n * n,
    lambda n, size: n * size + n * n,
    lambda n, size: size + n,
)
_SHARING = (lambda n, size: n * size, lambda n, size: n * size, lambda n, size: size, lambda n, size: size)
PROTOCOLS = (
    _Doubled("SecAgg", "SecAgg", secagg_costs, _SECAGG, 4),
    _Doubled("Two-server sharing", "Two-server ASS", sharing_costs, _SHARING, 1),
)
UNITS = ("s", "MB", "s", "MB")
_PER_UNIT = (1.0, 1e6, 1.0, 1e6)


@table("complexity", title="Complexity, theoretical and measured", night_seconds=60)
def complexity(settings: Settings, progress: Progress) -> Body:
    """Measure how the costs of SecAgg, of two-server sharing and of SecEmb grow."""
    size = NUMBERS // 20 if settings.quick else NUMBERS
    cells: list[Cell] = []
    for number, one in enumerate(PROTOCOLS):
        progress(number / 3, one.name)
        cells += _cells_of(one, size)
    progress(2 / 3, "SecEmb")
    cells += _cells_of_secemb(0.05 if settings.quick else 1.0)
    return Body(
        caption=f"How many times a cost grows when the users n, the numbers l, the items m, the items m' of a device "
        f"or the dimension d double, from n = {USERS}, l = {size:,}, m = {ITEMS:,}, m' = {CAPACITY}, d = {WIDTH - 1}. "
        "Beside it is the growth of the paper's formula with all constants one. In SecAgg a quarter of the users drop "
        "out. SAFELearn, LightSecAgg, FastSecAgg and SecAgg+ were not built.",
        cells=cells,
    )


def _cells_of(one: _Doubled, size: int) -> Iterator[Cell]:
    first = one.measure(USERS, size)
    for place, column in enumerate(COLUMNS):
        ours = first.figures[place] / _PER_UNIT[place]
        yield Cell(row=f"{one.name}, costs", column=column, ours=ours, unit=UNITS[place])
    paper = printed("tab:secagg", one.label, "rounds")
    yield Cell(row=f"{one.name}, costs", column="rounds", ours=float(one.rounds), paper=paper)
    for name, users, numbers in (("n", 2 * USERS, size), ("l", USERS, 2 * size)):
        second = one.measure(users, numbers)
        for place, column in enumerate(COLUMNS):
            formula = one.formulas[place]
            yield Cell(
                row=f"{one.name}, twice {name}",
                column=column,
                ours=second.figures[place] / first.figures[place],
                paper=formula(users, numbers) / formula(USERS, size),
                note=_TIME if UNITS[place] == "s" else _SECAGG_BYTES,
            )


_SECAGG_BYTES = "With all constants one the formula hides that a box of shares is longer than a number."


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """The sizes that SecEmb's costs depend on."""

    items: int = ITEMS
    capacity: int = CAPACITY
    width: int = WIDTH

    def formula(self) -> tuple[float, float, float]:
        """Return download, upload and computation as the paper's O(·) with all constants one."""
        row, levels = _BITS * (self.width - 1), log2(self.items)
        return self.capacity * row, self.capacity * (_SECURITY * levels + row), self.capacity * levels

    def measure(self, seconds: float) -> tuple[float, float, float]:
        """Return download and upload in bytes, and seconds."""
        geometry = direct_geometry(self.items, self.capacity)
        catalogue = PaperCatalogue("growth", self.items, self.capacity)
        round_ = catalogue.round(geometry, row_width=self.width, norm_bound=0)
        device = Device(round_, PathShared)
        best = processor_seconds({"share": device.share}, seconds)
        return Sizes.of(round_.task).download, device.share(), best["share"]


def _cells_of_secemb(seconds: float) -> Iterator[Cell]:
    first = _Shape()
    columns = ("client download", "client communication", "client computation")
    measured, formula = first.measure(seconds), first.formula()
    for column, ours, unit in zip(columns, measured, ("MB", "MB", "ms"), strict=True):
        yield Cell(row="SecEmb, costs", column=column, ours=ours / 1e6 if unit == "MB" else 1e3 * ours, unit=unit)
    doubled = {
        "m": _Shape(items=2 * ITEMS),
        "m'": _Shape(capacity=2 * CAPACITY),
        "d": _Shape(width=2 * (WIDTH - 1) + 1),
    }
    for name, shape in doubled.items():
        then, expected = shape.measure(seconds), shape.formula()
        for place, column in enumerate(columns):
            yield Cell(
                row=f"SecEmb, twice {name}",
                column=column,
                ours=then[place] / measured[place],
                paper=expected[place] / formula[place],
                note=_CONVERT if column == "client computation" else _PER_SLOT,
            )


_CONVERT = (
    "Convert and the messages are work for each number too, which the paper calls negligible: at d = 64 they are 34 "
    "blocks of AES beside 48 of a key with 12 levels; and each call has a fixed cost."
)
_PER_SLOT = "Each slot also carries a check of 48 bytes, a bias and a tag, which do not grow with d."
