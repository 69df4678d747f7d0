"""`make bench`: all measurements in sequence, as tables and as JSON."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from secemb_lab.bench import catalogues, devices, footprint, kernel, report, sharing
from secemb_lab.bench.report import describe_machine
from secemb_tools.catalogues import PaperCatalogue
from secemb_tools.output import console_for, write_figures


def run(
    output: Path, seconds: float, chosen: list[PaperCatalogue], *, models: Collection[str] = (), as_json: bool = False
) -> dict[str, Any]:
    """Measure everything, print tables and write the figures as JSON; with `as_json` also print them."""
    console = console_for(as_json=as_json)
    machine = describe_machine()
    console.print(" · ".join(f"{name} {value}" for name, value in machine.items()), style="dim")
    figures: dict[str, Any] = {"machine": machine}
    figures["kernel"] = kernel.measure(console, seconds)
    report.show_kernel(console, figures["kernel"])
    with console.status("noise"):
        figures["noise"] = kernel.measure_noise(seconds)
    kernel.show_noise(console, figures["noise"])
    with console.status("the device's cryptography"):
        figures["sharing"] = sharing.measure(chosen, seconds / 2)
    report.show_sharing(console, figures["sharing"])
    figures["catalogues"] = catalogues.measure(console, chosen, seconds)
    report.show_catalogues(console, figures["catalogues"])
    figures["devices"] = devices.measure(console, chosen, models)
    devices.show(console, figures["devices"])
    figures["footprint"] = footprint.measure()
    footprint.show(console, figures["footprint"])
    figures["bars"] = report.bars(figures)
    report.show_bars(console, figures["bars"])
    write_figures(console, output, figures, as_json=as_json)
    return figures
