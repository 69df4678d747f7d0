"""The demonstration as one HTML file: tables and plots, no scripts, no external resources."""

from collections.abc import Iterator

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from secemb_tools.charts import bar_chart, line_chart
from secemb_tools.demo.picture import draw
from secemb_tools.demo.result import (
    EXPLANATION,
    WHAT,
    DemoResult,
    comparison,
    data_words,
    opened_sum,
    person_lines,
    quality_words,
    server_views,
)
from secemb_tools.simulation.run import points_of

_TEMPLATES = Environment(loader=PackageLoader("secemb_tools.demo"), autoescape=True, undefined=StrictUndefined)


def render_report(result: DemoResult) -> str:
    """Return the report."""
    return _TEMPLATES.get_template("report.html").render(
        result=result,
        scenario=result.run.scenario,
        what=WHAT,
        data_words=data_words(result.run.scenario),
        quality_words=quality_words(result),
        comparison=comparison(result),
        person=result.person,
        person_lines=[] if result.person is None else person_lines(result.person),
        server_views=server_views(result),
        opened_sum=opened_sum(result),
        explanation=EXPLANATION,
        rounds=list(_rounds(result)),
        picture=Markup("" if result.corner is None else draw(result.corner)),  # noqa: S704 (numbers only)
        score_chart=Markup(_score_chart(result)),  # noqa: S704 (charts escape what they show)
        error_chart=Markup(_error_chart(result)),  # noqa: S704
        traffic_chart=Markup(_traffic_chart(result)),  # noqa: S704
        seconds_chart=Markup(_seconds_chart(result)),  # noqa: S704
    )


def _score_chart(result: DemoResult) -> str:
    baselines, rmse = result.baselines, result.run.rmse
    if baselines is None or rmse is None:
        return ""
    bars = {"with SecEmb": rmse, "user and item biases": baselines.biases, "the mean rating": baselines.global_mean}
    return bar_chart(bars, title="error on held-out ratings (RMSE): lower is better", unit="")


def _error_chart(result: DemoResult) -> str:
    series = {"private": points_of(result.run.rows), "plain": points_of(result.run.plain or [])}
    return line_chart(series, title="RMSE of the fleet on held-out ratings", across="round")


def _traffic_chart(result: DemoResult) -> str:
    traffic = result.traffic
    bars = {
        "with SecEmb": (traffic.sent + traffic.received) / 1e3,
        "the whole table, secret-shared": (traffic.full_sent + traffic.full_received) / 1e3,
    }
    return bar_chart(bars, title="kilobytes in both directions, all servers together", unit="kB")


def _seconds_chart(result: DemoResult) -> str:
    seconds = [(float(one.round), one.seconds) for one in result.rounds]
    return line_chart({"seconds": seconds}, title="Seconds per round", across="round")


def _rounds(result: DemoResult) -> Iterator[tuple[str, ...]]:
    for one in result.rounds:
        rmse = one.figures.get("rmse")
        yield (
            str(one.round),
            one.kind,
            *map(str, (one.retrieved, one.uploaded, one.matched, one.dropped)),
            f"{one.seconds:.2f}",
            "" if rmse is None else f"{rmse:.4f}",
            f"v{one.version} {one.digest[:8]}",
            "equal" if one.digests_equal else "differ",
        )
