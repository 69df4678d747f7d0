"""Curves of the error over the rounds."""

from collections.abc import Sequence

from secemb_tools.charts import Points, line_chart
from secemb_tools.report.figures import Figures

HIGHEST = 1.01  # what is worse than this is the beginning, and not of interest


def draw(found: Sequence[Figures], control: float) -> str:
    """Return the picture: a line for each plain run, a dotted one for the private run, and the control."""
    series: dict[str, Points] = {}
    for one in found:
        name = f"{one.model} {one.plain:.3f}"
        series[name] = [(point.round, min(point.plain, HIGHEST)) for point in one.curve]
        private = [(point.round, point.private) for point in one.curve if point.private is not None]
        series[f"{name}, private"] = [(round_, min(error, HIGHEST)) for round_, error in private]
    title, level = "RMSE; dotted: trained privately", (f"biases only {control:.3f}", control)
    return line_chart(series, title=title, across="rounds of 100 devices", pairs=True, level=level)
