"""The text of cells, and of the explanations below a table."""

from collections.abc import Sequence

from secemb_lab.paper.paper_table import Cell, Table, Value, Verdict

MARKS = {
    Verdict.BETTER: "▲",
    Verdict.AGREES: "=",
    Verdict.DIFFERS: "≠",
    Verdict.NO_DATA: "-",
    Verdict.OURS_ALONE: "",
}


def figure(value: Value) -> str:
    """Return a value with three significant digits, or all digits before the point."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def ours(cell: Cell) -> str:
    """Return our figure, with its spread."""
    return figure(cell.ours) + ("" if cell.spread is None else f" ± {cell.spread:.3f}")


def ratio(cell: Cell) -> str:
    """Return ours as a multiple of the paper's."""
    return "" if cell.ratio is None else f"{cell.ratio:.2g}×" if cell.ratio < 10 else f"{cell.ratio:,.0f}×"


def compared(cell: Cell) -> str:
    """Return both figures, the ratio and the mark on one line."""
    if cell.ours is None:
        return "no data here" + ("" if cell.paper is None else f" (paper {figure(cell.paper)})")
    if cell.paper is None:
        return ours(cell)
    parts = [f"{ours(cell)} / {figure(cell.paper)}", ratio(cell), MARKS[cell.verdict]]
    return " ".join(filter(None, parts))


def unit_of(table: Table) -> str:
    """Return the unit if all cells that have one have the same."""
    units = {one.unit for one in table.cells if one.unit}
    return units.pop() if len(units) == 1 else ""


def explanations(table: Table) -> list[tuple[str, str]]:
    """Return, for each sentence, the cells that it explains: those that differ or have no data."""
    places: dict[str, list[Cell]] = {}
    for cell in table.cells:
        if cell.verdict in (Verdict.DIFFERS, Verdict.NO_DATA) and cell.note:
            places.setdefault(cell.note, []).append(cell)
    return [(_where(cells, table), note) for note, cells in places.items()]


def _where(cells: Sequence[Cell], table: Table) -> str:
    """Return the affected rows, with their columns unless all are affected."""
    columns = {row: [one.column for one in cells if one.row == row] for row in dict.fromkeys(c.row for c in cells)}
    every = {row: [one.column for one in table.cells if one.row == row] for row in columns}
    if all(columns[row] == every[row] for row in columns):
        return "; ".join(columns)
    groups: dict[tuple[str, ...], list[str]] = {}
    for row, names in columns.items():
        groups.setdefault(tuple(names), []).append(row)
    return "; ".join(f"{', '.join(rows)} ({', '.join(names)})" for names, rows in groups.items())


def counts(tables: Sequence[Table]) -> dict[Verdict, int]:
    """Return how many cells have each verdict."""
    found = [cell.verdict for one in tables for cell in one.cells]
    return {verdict: found.count(verdict) for verdict in Verdict}


def machine_words(machine: dict[str, str]) -> str:
    """Return the machine on one line."""
    rest = ", ".join(f"{name} {machine[name]}" for name in ("python", "numpy") if name in machine)
    return f"{machine.get('processor', 'unknown processor')}, {machine.get('cores', '?')} cores, {rest}"
