"""All measurements one after the other: tables for people, figures for programs."""

import json
from pathlib import Path
from typing import Any

from rich.console import Console

from secemb_tools.bench import catalogues, devices, footprint, kernel, noise, report, sharing
from secemb_tools.bench.catalogues import Catalogue
from secemb_tools.bench.machine import describe_machine


def run(output: Path, seconds: float, chosen: list[Catalogue], *, as_json: bool = False) -> dict[str, Any]:
    """Measure everything, print tables and write the figures as JSON; with `as_json` print that too."""
    console = Console(stderr=as_json)
    if not console.is_terminal:
        console = Console(width=150, stderr=as_json)  # the tables are for reading in a file, then
    machine = describe_machine()
    console.print(" · ".join(f"{name} {value}" for name, value in machine.items()), style="dim")
    figures: dict[str, Any] = {"machine": machine}
    figures["kernel"] = kernel.measure(console, seconds)
    report.show_kernel(console, figures["kernel"])
    with console.status("noise"):
        figures["noise"] = noise.measure(seconds)
    noise.show(console, figures["noise"])
    with console.status("the device's cryptography"):
        figures["sharing"] = sharing.measure(chosen, seconds / 2)
    report.show_sharing(console, figures["sharing"])
    figures["catalogues"] = catalogues.measure(console, chosen, seconds)
    report.show_catalogues(console, figures["catalogues"])
    figures["devices"] = devices.measure(console, chosen)
    devices.show(console, figures["devices"])
    figures["footprint"] = footprint.measure()
    footprint.show(console, figures["footprint"])
    figures["bars"] = report.bars(figures)
    report.show_bars(console, figures["bars"])
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(figures, indent=1) + "\n")
    console.print(f"figures in {output}")
    if as_json:
        print(json.dumps(figures, indent=1))
    return figures
