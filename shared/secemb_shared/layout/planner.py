"""A planner that finds the cheapest binned geometry for a catalogue with a bounded loss probability."""

from bisect import bisect_left
from dataclasses import dataclass

from secemb_shared.errors import LayoutError
from secemb_shared.layout.geometry import MOST_TABLES, Geometry
from secemb_shared.layout.loss import loss_bound
from secemb_shared.ring import RING_BITS
from secemb_shared.row_words import SINGLE, words_of

# In at most one device-round in a million is an item left out. 1e-4 would save at most one bin per table.
DEFAULT_LOSS = 1e-6
LEVEL_BITS = 129  # a correction word on the wire: 128 bits of seed and one control bit that is not implied by it
ROW_WORD_BYTES = ROW_TAG_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A geometry and its costs for a device and a round."""

    geometry: Geometry
    capacity: int  # as requested, but at most the number of items in the catalogue
    upload_bytes: int  # the public part: correction words of all levels, and one update row per slot
    download_bytes: int  # one row and its tag per slot, as relayed by server 0
    loss: float  # upper bound on the probability that some item of a full set of `capacity` items is not placed


def plan(
    *,
    items: int,
    capacity: int,
    row_width: int,
    ring_bits: int = 32,
    row_bits: int = SINGLE,
    loss: float = DEFAULT_LOSS,
    max_tables: int = 4,
) -> Plan:
    """Return the binned layout with the smallest upload whose loss bound is at most `loss`.

    One table with one bin per item never loses an item and is the plan to beat. For each number of tables, bisection
    finds the smallest number of bins that keeps the bound; more bins are tried if they make the trees shallower. The
    bound falls as bins are added, except for small steps where their size changes, so the result may be one bin away
    from the optimum; its own bound is always at most `loss`.
    """
    task = _Task(items, capacity, row_width, ring_bits, row_bits, loss)
    if not 1 <= max_tables <= MOST_TABLES:
        raise LayoutError(f"a layout must have 1 to {MOST_TABLES} tables")
    best = task.geometry(tables=1, bins=items)
    for tables in range(max_tables, 0, -1):  # most tables first: this nearly always ends the other searches early
        best = _cheapest(task, tables, best)
    return task.plan(best)


class _Task:
    """The requirements of a plan, and the cost of a geometry under them."""

    def __init__(self, items: int, capacity: int, row_width: int, ring_bits: int, row_bits: int, loss: float) -> None:
        if capacity < 1 or row_width < 1:
            raise LayoutError("capacity and row width must be at least 1")
        if ring_bits not in RING_BITS:
            raise LayoutError("the ring must have 24, 32 or 64 bits")
        if not 0.0 <= loss < 1.0:
            raise LayoutError("the loss probability must be at least 0 and less than 1")
        self.items = items
        self.capacity = min(capacity, items)
        self.row_words = words_of(row_width, row_bits)
        self.update_bits = row_width * ring_bits
        self.loss = loss
        self._bounds: dict[Geometry, float] = {}  # a bound takes tens of milliseconds and is needed repeatedly

    def geometry(self, *, tables: int, bins: int) -> Geometry:
        """Return the binned geometry of this catalogue."""
        return Geometry(items=self.items, tables=tables, bins=bins, slots_per_bin=1)

    def bound(self, geometry: Geometry) -> float:
        """Return the geometry's loss bound."""
        if geometry not in self._bounds:
            self._bounds[geometry] = loss_bound(
                items=self.items, capacity=self.capacity, tables=geometry.tables, bins=geometry.bins
            )
        return self._bounds[geometry]

    def keeps(self, geometry: Geometry) -> bool:
        """Return whether the geometry's loss probability is low enough."""
        return self.bound(geometry) <= self.loss

    def upload_bytes(self, geometry: Geometry) -> int:
        """Return the size of the public part in bytes, with the control bits packed."""
        return -(-LEVEL_BITS * geometry.depth * geometry.slots // 8) + geometry.slots * self.update_bits // 8

    def plan(self, geometry: Geometry) -> Plan:
        """Return the geometry with its costs."""
        return Plan(
            geometry=geometry,
            capacity=self.capacity,
            upload_bytes=self.upload_bytes(geometry),
            download_bytes=geometry.slots * (self.row_words * ROW_WORD_BYTES + ROW_TAG_BYTES),
            loss=self.bound(geometry),
        )


def _cheapest(task: _Task, tables: int, best: Geometry) -> Geometry:
    """Return the cheapest geometry with this many tables, or `best` if none is cheaper than that."""
    useful = _useful_bins(task, tables, task.upload_bytes(best))
    if not useful:
        return best
    fewest = _fewest_bins(task, tables, range(useful[0].start, useful[-1].stop))
    candidates = [task.geometry(tables=tables, bins=max(fewest, bins.start)) for bins in useful if fewest < bins.stop]
    candidates.sort(key=task.upload_bytes)
    return next((candidate for candidate in candidates if task.keeps(candidate)), best)


def _useful_bins(task: _Task, tables: int, limit: int) -> list[range]:
    """Return the numbers of bins, ascending, that hold a full set in less than `limit` bytes: one range per depth."""
    needed = -(-task.capacity // tables)
    ranges = []
    for depth in range((task.items - 1).bit_length(), -1, -1):
        first = -(-task.items >> depth)  # ceil(items / first) is at most 2^depth
        last = (task.items - 1) >> (depth - 1) if depth else task.items  # and still above 2^(depth-1)
        affordable = 8 * (limit - 1) // ((LEVEL_BITS * depth + task.update_bits) * tables)
        ranges.append(range(max(needed, first), min(last, affordable) + 1))
    return [bins for bins in ranges if bins]


def _fewest_bins(task: _Task, tables: int, bins: range) -> int:
    """Return the first number in `bins` that keeps the bound, or the last number if none does."""

    def keeps(count: int) -> bool:
        return task.keeps(task.geometry(tables=tables, bins=count))

    low, high = bins[0], bins[0]
    while high < bins[-1]:  # the result is nearly always close to the start of a range that may span millions
        high = min(high + high // 4 + 1, bins[-1])
        if keeps(high):
            break
        low = high
    return low + bisect_left(range(low, high), True, key=keeps)
