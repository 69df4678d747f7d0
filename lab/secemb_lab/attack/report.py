"""`make attack`: every attack against two real servers, as a table, figures, a page and goals."""

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from time import perf_counter

from pydantic import TypeAdapter
from rich.table import Table

from secemb_lab.attack.attack_goals import goals
from secemb_lab.attack.attacks import ATTACKS, FIGURES, NONE, Attack
from secemb_lab.attack.stage import Figures, a_stage
from secemb_lab.bench.report import describe_machine
from secemb_lab.report.report_file import Goal
from secemb_tools.charts import bar_chart
from secemb_tools.errors import OperationError
from secemb_tools.local.process import stopped_by_signals, workspace
from secemb_tools.output import console_for, note

_FIGURES = TypeAdapter(list[Figures])
ROUNDS, SLOW_ROUNDS = 50, 10
_QUICK_ROUNDS = 1
# One of each kind: the others differ only in degree.
QUICK = (
    "none",
    "ring extremes",
    "random words",
    "equal seeds",
    "wrong cs",
    "3 x bound, all numbers",
    "10 x bound, one number",
    "wrap-around",
    "framing",
    "requests without bodies",
    "idle connections",
    "endless headers",
    "floods of reads",
    "silent tokens",
    "promotion within the bound",  # rows that it has touched keep changing
)
COLUMNS = (
    "attack",
    "rounds",
    "published",
    "finished",
    "latency",
    "round s",
    "rows",
    "RMSE",
    "beyond",
    "MB 0",
    "MB 1",
    "what operators see",
)


def run(
    output: Path,
    *,
    quick: bool,
    names: Sequence[str],
    rounds: int | None,
    resume: bool = False,
    as_json: bool = False,
) -> bool:
    """Run the attacks, print a table, write figures, a page and a plot; return whether all goals were reached."""
    console = console_for(as_json=as_json, width=200)
    chosen = _chosen(names, quick=quick)
    kept = read(output, quick=quick, rounds=rounds) if resume else {}
    if resume:
        note(f"{sum(one.name in kept for one in chosen)} of {len(chosen)} attacks are in {output} and stay as they are")

    def keep(found: Sequence[Figures]) -> None:
        """Write the measurements so far, so that nothing is lost if the report is stopped."""
        write(output, compared(found, quick=quick), quick=quick)

    work = _run_all(chosen, kept, keep, quick=quick, rounds=rounds)
    found = compared(asyncio.run(stopped_by_signals(work)), quick=quick)
    wanted = goals(found, quick=quick)
    console.print(table(found))
    for one in _missed(wanted):
        console.print(one)
    document = write(output, found, quick=quick)
    console.print(f"figures in {output}")
    if as_json:
        print(document)
    console.print(f"{sum(one.reached for one in wanted)} of {len(wanted)} goals reached")
    return all(one.reached for one in wanted)


def write(output: Path, found: Sequence[Figures], *, quick: bool) -> str:
    """Write the figures, with the page and the plot next to them; return the figures as JSON."""
    wanted = goals(found, quick=quick)
    figures = {
        "quick": quick,
        "machine": describe_machine(),
        "attacks": [asdict(one) for one in found],
        "goals": [asdict(one) for one in wanted],
    }
    document = json.dumps(figures, indent=1)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(document + "\n", encoding="utf-8")
    picture = bar_chart(
        {one.attack: one.rmse for one in found}, title="RMSE after the rounds under each attack", unit=""
    )
    output.with_name(f"{output.stem}-rmse.svg").write_text(picture, encoding="utf-8")
    output.with_suffix(".md").write_text(page(found, wanted, f"{output.stem}-rmse.svg"), encoding="utf-8")
    return document


def read(output: Path, *, quick: bool, rounds: int | None) -> dict[str, Figures]:
    """Return the measurements of an earlier report, finished or not, over as many rounds as requested now."""
    if not output.exists():
        return {}
    try:
        document = json.loads(output.read_bytes())
        found = _FIGURES.validate_python(document["attacks"])
    except (ValueError, KeyError, TypeError):
        raise OperationError(f"{output} does not hold figures of this report; choose another --output") from None
    same = [one for one in found if one.attack in ATTACKS and one.rounds == _rounds(ATTACKS[one.attack], quick, rounds)]
    return {one.attack: one for one in same} if document.get("quick") == quick else {}


def _rounds(attack: Attack, quick: bool, rounds: int | None) -> int:
    return rounds or (_QUICK_ROUNDS if quick else SLOW_ROUNDS if attack.slow else ROUNDS)


def _chosen(names: Sequence[str], *, quick: bool) -> list[Attack]:
    if unknown := [one for one in names if one not in ATTACKS]:
        raise OperationError(f"--attack: unknown attack {unknown[0]!r}; choose one of {', '.join(ATTACKS)}")
    chosen = names or (QUICK if quick else tuple(ATTACKS))
    return [NONE, *(ATTACKS[one] for one in chosen if one != NONE.name)]


async def _run_all(
    attacks: Sequence[Attack],
    kept: Mapping[str, Figures],
    keep: Callable[[Sequence[Figures]], None],
    *,
    quick: bool,
    rounds: int | None,
) -> list[Figures]:
    """Run each attack against separate servers; a quick run starts servers once for each setting."""
    start, found = perf_counter(), {one.name: kept[one.name] for one in attacks if one.name in kept}
    left = [one for one in attacks if one.name not in found]
    groups = [list(some) for _, some in groupby(left, key=lambda one: one.setting)]
    for group in groups if quick else [[one] for one in left]:
        with workspace("secemb-attack-") as folder:
            async with a_stage(folder, group[0], rounds or ROUNDS) as stage:
                for one in group:
                    found[one.name] = await stage.run(one, _rounds(one, quick, rounds))
                    keep([found[done.name] for done in attacks if done.name in found])
                    note(f"{len(found)} of {len(attacks)}, {perf_counter() - start:.0f} s: {one.name}")
    return [found[one.name] for one in attacks]


def compared(found: Sequence[Figures], *, quick: bool) -> list[Figures]:
    """Return the figures compared with those without an attack; errors only after equally many training rounds."""
    base = found[0]
    return [
        replace(
            one,
            latency_ratio=_ratio(one.device_seconds, base.device_seconds),
            rmse_beyond=one.rmse - base.rmse
            if one.rounds == base.rounds and one.kind != FIGURES and not quick
            else None,
        )
        for one in found
    ]


def _ratio(one: float | None, base: float | None) -> float | None:
    return None if one is None or base is None else one / base


def seen_words(seen: Iterable[dict[str, int]]) -> str:
    """Return the counters of both servers in words, without published rounds."""
    parts = (
        f"{role}: {name} {count}"
        for role, one in enumerate(seen)
        for name, count in sorted(one.items())
        if name != "rounds: published"
    )
    return "; ".join(parts)


def token_words(tokens: Mapping[str, Mapping[str, int]]) -> str:
    """Return the counters of tokens in words, without honest ones that only took part."""
    parts = (
        f"{name} tokens: " + ", ".join(f"{what} {count}" for what, count in counts.items())
        for name, counts in tokens.items()
        if name == "hostile" or set(counts) - {"joined", "completed"}
    )
    return "; ".join(parts)


def cells_of(one: Figures) -> list[str]:
    """Return the row of one attack."""
    rank = "" if one.rank is None else f" (rank {one.rank[0]} → {one.rank[1]})"
    return [
        one.attack,
        str(one.rounds),
        str(one.published),
        f"{one.finished}/{one.devices}",
        "-" if one.latency_ratio is None else f"{one.latency_ratio:.2f}",
        f"{one.round_seconds:.2f}",
        f"{one.rows_touched}{rank}",
        f"{one.rmse:.4f}",
        "-" if one.rmse_beyond is None else f"{one.rmse_beyond:+.4f}",
        *(f"{grown / 1e6:+.0f}" for grown in one.memory_growth),
        "; ".join(filter(None, (seen_words(one.seen), token_words(one.tokens)))),
    ]


def table(found: Sequence[Figures]) -> Table:
    """Return a row for each attack."""
    shown = Table(title="Attacks against two real servers on loopback", title_justify="left")
    for name in COLUMNS:
        shown.add_column(name, justify="left" if name in (COLUMNS[0], COLUMNS[-1]) else "right", overflow="fold")
    for one in found:
        shown.add_row(*cells_of(one))
    return shown


def page(found: Sequence[Figures], wanted: Sequence[Goal], picture: str) -> str:
    """Return the report as Markdown."""
    lines = [
        "# Hostile clients against two real servers",
        "",
        f"`make attack`: {sum(one.reached for one in wanted)} of {len(wanted)} goals reached.",
        "",
        "Latency is the time of an honest device from its first request to its receipt, relative to no attack.",
        (
            "Rows are those that changed although no honest device has them. RMSE is measured on ratings that no "
            "device has;"
        ),
        "`beyond` is its increase over no attack after the same number of rounds. MB is the growth of each server.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "| --- |" + " ---: |" * (len(COLUMNS) - 2) + " --- |",
        *("| " + " | ".join(cells_of(one)) + " |" for one in found),
        "",
        *(f"- {one}" for one in _missed(wanted)),
        "",
        f"![RMSE after the rounds under each attack]({picture})",
    ]
    return "\n".join(lines) + "\n"


def _missed(wanted: Sequence[Goal]) -> Iterator[str]:
    for one in wanted:
        if not one.reached:
            yield f"missed: {one.name}: {one.measured:.4g}, goal {one.goal:.4g}"
