"""The page of `make paper`: one HTML file without scripts or external resources, light or dark, also on a phone."""

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from secemb_lab.paper import cell_text
from secemb_lab.paper.errata import ERRATA
from secemb_lab.paper.paper_table import Plot, Verdict
from secemb_lab.paper.stored_tables import Measured
from secemb_tools.charts import line_chart

_TEMPLATES = Environment(loader=PackageLoader("secemb_lab.paper"), autoescape=True, undefined=StrictUndefined)
_CLASSES = {
    Verdict.BETTER: "better",
    Verdict.AGREES: "agrees",
    Verdict.DIFFERS: "differs",
    Verdict.NO_DATA: "missing",
    Verdict.OURS_ALONE: "alone",
}
_SMALL = 0.2  # of the largest figure


def render(found: Sequence[Measured]) -> str:
    """Return the page."""
    return _TEMPLATES.get_template("paper.html").render(
        found=found,
        text=cell_text,
        classes=_CLASSES,
        marks=cell_text.MARKS,
        counts=cell_text.counts([one.table for one in found]),
        errata=ERRATA,
        picture=picture,
        quick=any(one.quick for one in found),
        seconds=sum(one.table.seconds for one in found),
    )


def picture(plot: Plot) -> Markup:
    """Return a plot as SVG."""
    heights = [height for points in plot.lines.values() for _, height in points]
    # With much larger figures the axis would begin below zero.
    span = (0.0, max(heights)) if heights and 0 <= min(heights) < _SMALL * max(heights) else None
    drawn = line_chart(plot.lines, title=plot.title, across=plot.across, doubling=plot.doubling, span=span)
    return Markup(drawn)  # noqa: S704 (charts escape what they show)
