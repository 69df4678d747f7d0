"""The demonstration as one HTML file: tables and plots, no script, no request to anybody."""

from collections.abc import Iterable, Sequence
from html import escape

from secemb_tools.charts import bar_chart, line_chart
from secemb_tools.demo.summary import EXPLANATION, Ending, comparison, learned, sights
from secemb_tools.simulation.run import points_of

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); }
.good { color: #3f9142; } .bad { color: #d1242f; } svg { width: 100%; height: auto; }
.wide { overflow-x: auto; } code { background: var(--soft); padding: .1em .3em; border-radius: 3px; }
"""
_HEAD = (
    '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width, initial-scale=1">'
    f"<title>SecEmb: a private run</title><style>{_STYLE}</style></head>"
)


def page(ending: Ending) -> str:
    """Return the report."""
    scenario, verdict = ending.run.scenario, _verdict(ending)
    body = [
        "<h1>SecEmb: a private run</h1>",
        f"<p>{scenario.devices:,} devices, {ending.run.scenario.cohort} in a round, {scenario.rounds} rounds, "
        f"model {escape(scenario.model)}, seed {scenario.seed}, {ending.transport}; "
        f"{ending.seconds:.0f} seconds. {verdict}</p>",
        "<h2>What it learned</h2>",
        line_chart(_errors(ending), title="RMSE of the fleet on held-out ratings", across="round"),
        _table(("", "with SecEmb", "without", ""), comparison(ending)),
        "<h2>What a device moved in a round</h2>",
        bar_chart(_bars(ending), title="kilobytes, both directions and all that it calls", unit="kB"),
        "<h2>What each server saw</h2>",
        _table(("", "server 0", "server 1"), sights(ending)),
        f"<p>{escape(learned(ending))}</p>",
        f"<p>{escape(EXPLANATION)}</p>",
        "<h2>Rounds</h2>",
        line_chart({"seconds": _seconds(ending)}, title="Seconds a round took", across="round"),
        _table(_HEADS, _rounds(ending)),
        f"<p>Task <code>{escape(ending.run.task_id)}</code>. Made by <code>secemb demo --seed {scenario.seed}</code>; "
        "on this machine the same seed gives the same model, bit for bit.</p>",
    ]
    return f"{_HEAD}\n<body>\n" + "\n".join(body) + "\n</body></html>\n"


_HEADS = ("round", "kind", "retrieved", "uploaded", "matched", "dropped", "seconds", "RMSE", "model", "digests")


def _verdict(ending: Ending) -> str:
    if ending.good:
        return '<strong class="good">All as it must be.</strong>'
    return '<strong class="bad">Something is not as it must be.</strong>'


def _errors(ending: Ending) -> dict[str, list[tuple[float, float]]]:
    return {"private": points_of(ending.run.rows), "plain": points_of(ending.run.plain or [])}


def _seconds(ending: Ending) -> list[tuple[float, float]]:
    return [(float(one.round), one.seconds) for one in ending.seen]


def _bars(ending: Ending) -> dict[str, float]:
    traffic = ending.traffic
    return {
        "with SecEmb": (traffic.sent + traffic.received) / 1e3,
        "the whole table, shared among the servers": (traffic.full_sent + traffic.full_received) / 1e3,
    }


def _rounds(ending: Ending) -> Iterable[tuple[str, ...]]:
    for one in ending.seen:
        rmse = one.figures.get("rmse")
        counts = (one.retrieved, one.uploaded, one.matched, one.dropped)
        yield (
            str(one.round),
            one.kind,
            *map(str, counts),
            f"{one.seconds:.2f}",
            "" if rmse is None else f"{rmse:.4f}",
            f"v{one.version} {one.digest[:8]}",
            "equal" if one.digests_equal else "differ",
        )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    lines = ("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table></div>'
