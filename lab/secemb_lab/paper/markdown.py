"""docs/paper.md, from the tables that are stored beside it."""

import textwrap
from collections.abc import Iterator, Sequence

from secemb_lab.paper import cell_text
from secemb_lab.paper.errata import ERRATA
from secemb_lab.paper.paper_table import Table, Verdict, all_tables
from secemb_lab.paper.stored_tables import Measured

_WIDTH, _MINUTE = 100, 60
_INTRODUCTION = """\
Each table and figure of the SecEmb paper, measured with this software. `make paper` measures them and writes
`build/paper/index.html`, a page with plots; `TABLES=upload,ablation` chooses, `QUICK=1` takes less than a minute
and only shows that everything runs, `ARGS=--resume` resumes an interrupted run. `make paper-docs` writes this
page from `docs/paper.json`, to which it adds the latest results of `make paper`. No figure here is typed by hand.
"""
_LEGEND = """\
A cell is our figure / the paper's, the ratio, and a mark: {marks}. A sentence below the table explains each difference.
Only figures that SecEmb is meant to improve can be better; a baseline agrees or differs. A figure on its own has no
counterpart in the paper. Bytes are lengths of encoded messages. Times are from one run on one machine: compare ratios.
"""


def render(found: Sequence[Measured]) -> str:
    """Return the page."""
    parts = [
        "# The paper's tables",
        _wrapped(_INTRODUCTION),
        _wrapped(_LEGEND.format(marks=_marks())),
        _totals(found),
        _night(),
        *(_section(one) for one in found),
        "## Errors in the paper",
        _wrapped("Found while building this software, each with evidence in this repository."),
        "\n".join(_errata()),
    ]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _marks() -> str:
    return ", ".join(f"{mark} {verdict.value}" for verdict, mark in cell_text.MARKS.items() if mark.strip("-"))


def _totals(found: Sequence[Measured]) -> str:
    tables = [one.table for one in found]
    counts = cell_text.counts(tables)
    told = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
    lines = ["| table | cells | seconds | machine |", "| --- | ---: | ---: | --- |"]
    for one in found:
        machine, link = cell_text.machine_words(one.machine), f"[{one.table.title}](#{_anchor(one.table.title)})"
        lines.append(f"| {link} | {len(one.table.cells)} | {one.table.seconds:.0f} | {machine} |")
    whole = sum(one.seconds for one in tables)
    return "\n".join([_wrapped(f"Of all cells: {told}. All tables took {whole:.0f} s."), "", *lines])


def _night() -> str:
    """Return how long each table takes in full, measured here or not."""
    times = {name: one.night_seconds for name, one in all_tables().items()}
    told = ", ".join(f"{name} {_duration(seconds)}" for name, seconds in times.items())
    return _wrapped(f"On two idle cores a full run takes about {_duration(sum(times.values()))}: {told}.")


def _duration(seconds: float) -> str:
    if seconds < _MINUTE:
        return "under a minute"
    minutes = round(seconds / _MINUTE)
    return f"{minutes} min" if minutes < 2 * _MINUTE else f"{minutes / _MINUTE:.1f} h"


def _anchor(title: str) -> str:
    kept = "".join(sign for sign in title.lower() if sign.isalnum() or sign in " -_")
    return "-".join(kept.split())


def _section(one: Measured) -> str:
    table = one.table
    notes = [_item(f"{where}: {note}") for where, note in cell_text.explanations(table)]
    parts = [f"## {table.title}", _wrapped(table.caption), _grid(table), *(["\n".join(notes)] if notes else [])]
    return "\n\n".join(parts)


def _grid(table: Table) -> str:
    unit = cell_text.unit_of(table)
    lines = [f"| {' | '.join([unit, *table.columns])} |", "| --- |" + " ---: |" * len(table.columns)]
    for row in table.rows:
        cells = [table.cell(row, column) for column in table.columns]
        written = ["" if cell is None else _cell(cell_text.compared(cell), "" if unit else cell.unit) for cell in cells]
        lines.append(f"| {' | '.join([row, *written])} |")
    return "\n".join(lines).replace("|  ", "| ")


def _cell(text: str, unit: str) -> str:
    return f"{text} {unit}".strip()


def _errata() -> Iterator[str]:
    for one in ERRATA:
        evidence = ", ".join(f"`{part}`" for part in one.evidence.split("::"))  # shorter parts can be wrapped
        yield _item(f"**{one.place}.** {one.said} {one.right} Evidence: {evidence}.")


def _item(text: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent="- ", subsequent_indent="  ", break_long_words=False, break_on_hyphens=False
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)
