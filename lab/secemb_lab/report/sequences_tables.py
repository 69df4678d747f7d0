"""The tables of `make sequences`, as Markdown."""

from collections.abc import Iterator, Sequence

from secemb_lab.report.published import PAPER_REDUCTION, SEQUENCE_CENTRAL, SEQUENCE_PAPER
from secemb_lab.report.report_file import Cells, markdown
from secemb_lab.report.sequences_cost import Bytes, CatalogueSize
from secemb_lab.report.sequences_goals import RANKED, perplexities
from secemb_lab.report.sequences_run import SequenceRun, value_of
from secemb_sdk.models import registry

_AMONG = {True: "100 strangers", False: "the whole catalogue"}
_MEGA = 1e6


def rankings_table(runs: Sequence[SequenceRun]) -> str:
    """Return rankings of everybody's last event beside popularity and published figures; empty if there are none."""
    heads = ("set", "what", "among", "n", *RANKED.values())
    rows = [row for run in runs if run.figure("model", "hit_rate") is not None for row in _ranking_rows(run)]
    return markdown(heads, rows) if rows else ""


def texts_table(runs: Sequence[SequenceRun]) -> str:
    """Return perplexities over the whole vocabulary beside the bigrams'; empty if there are none."""
    rows = [
        (run.dataset, part, registry.find(run.model).title, f"**{mine:.1f}**", f"{other:.1f}")
        for run in runs
        for part, mine, other in perplexities(run)
    ]
    return markdown(("set", "held out", "model", "perplexity", "interpolated bigrams"), rows) if rows else ""


def runs_table(runs: Sequence[SequenceRun]) -> str:
    """Return how each model was trained, and how far the private run went."""
    heads = (
        *("set", "model", "people", "items", "events", "m'", "rounds × cohort", "end", "private rounds, equal bits"),
        "training, min",
    )
    return markdown(heads, map(_run_row, runs))


def costs_table(runs: Sequence[SequenceRun]) -> str:
    """Return what a round costs a device."""
    heads = (
        *("set", "model", "up / down, direct", "relayed", "on the wire, direct", "relayed", "CPU", "memory", "process"),
        *("two shares of the whole update", "upload reduction, direct", "relayed"),
    )
    return markdown(heads, map(_cost_row, runs))


def sizes_table(sizes: Sequence[CatalogueSize]) -> str:
    """Return what a round costs a device whose catalogue is all of Amazon."""
    heads = (
        *("model", "d", "items", "m'", "slots", "up / down, direct", "relayed", "two shares of the whole update"),
        *("upload reduction, direct", "relayed", "paper", "CPU of keys", "of the upload"),
    )
    return markdown(heads, map(_size_row, sizes))


def final_tables(runs: Sequence[SequenceRun]) -> str:
    """Return everything that the runs have measured on what was held out."""
    return "\n".join(f"### {run.name}\n\n{_final_table(run)}" for run in runs if run.final)


def _ranking_rows(run: SequenceRun) -> Iterator[Cells]:
    title = registry.find(run.model).title
    for among, where in _AMONG.items():
        for of, what in {"popularity": "popularity", "model": f"**{title}**"}.items():
            values = [run.figure(of, name, among=among) for name in RANKED]
            people = run.final.get(of, {}).get("people", "")
            yield run.dataset, what, where, f"{people:,}" if people else "", *map(_share, values)
    for whose, known, where in (
        ("others, not private", SEQUENCE_CENTRAL, "100 strangers"),
        ("the paper", SEQUENCE_PAPER, "not stated"),
    ):
        if (pair := known.get(run.dataset, {}).get(run.model)) is not None:
            yield run.dataset, f"{title}, {whose}", where, "", *map(_share, pair)


def _run_row(run: SequenceRun) -> Cells:
    return (
        run.dataset,
        registry.find(run.model).title,
        f"{run.people:,}",
        f"{run.items:,}",
        f"{run.events:,}",
        str(run.capacity),
        f"{run.trained:,} × {run.cohort}",
        run.ended,
        f"{run.private_rounds:,} of {run.private_wanted:,}: {'yes' if run.same_bits else 'NO'}",
        f"{run.seconds / 60:.0f}",
    )


def _cost_row(run: SequenceRun) -> Cells:
    return (
        run.dataset,
        registry.find(run.model).title,
        _kilobytes(run.bytes.direct),
        _kilobytes(run.bytes.relayed),
        *(_kilobytes(run.wire[way]) for way in ("direct", "relayed")),
        f"{sum(run.device.cpu_ms.values()):.0f} ms",
        f"{run.device.peak_bytes / _MEGA:.0f} MB",
        f"{run.device.process_bytes / _MEGA:.0f} MB",
        f"{2 * run.update_bytes / _MEGA:.2f} MB",
        *(f"{ratio:.1f}" for ratio in run.reductions),
    )


def _size_row(one: CatalogueSize) -> Cells:
    return (
        registry.find(one.model).title,
        str(one.dimension),
        f"{one.items:,}",
        str(one.capacity),
        str(one.slots),
        _kilobytes(one.bytes.direct),
        _kilobytes(one.bytes.relayed),
        f"{2 * one.update_bytes / _MEGA:,.0f} MB",
        *(f"**{ratio:,.0f}**" for ratio in one.reductions),
        f"{PAPER_REDUCTION[one.model]:,}" if one.model in PAPER_REDUCTION else "",
        f"{one.keys_ms:.0f} ms",
        f"{one.words_ms:,.0f} ms",
    )


def _final_table(run: SequenceRun) -> str:
    names = dict.fromkeys(name for figures in run.final.values() for name in figures)
    rows = [(of, *(_cell(figures.get(name)) for name in names)) for of, figures in run.final.items()]
    return markdown(("", *names), rows)


def _cell(found: object) -> str:
    """Return a figure as people read it; a whole number is a count."""
    if isinstance(found, int):
        return f"{found:,}"
    value = value_of(found)
    return "" if value is None else f"{value:.4f}" if value < 1 else f"{value:,.2f}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _kilobytes(moved: Bytes) -> str:
    return f"{moved[0] / 1e3:,.1f} / {moved[1] / 1e3:,.1f} kB"
