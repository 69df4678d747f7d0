"""`secemb plan` as Typer sees it."""

from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, refusals


def plan(
    items: Annotated[int | None, typer.Option(min=1, help="Rows of the table.")] = None,
    capacity: Annotated[int | None, typer.Option(min=1, help="Most items of a device in a round (m').")] = None,
    catalogue: Annotated[str | None, typer.Option(help="Instead of both: ML100K, ML1M, ML10M, ML25M or Yelp.")] = None,
    width: Annotated[int, typer.Option(min=1, help="Numbers a row, biases included.")] = 65,
    dense_size: Annotated[int, typer.Option(min=0, help="Numbers outside the table.")] = 0,
    cohort: Annotated[int, typer.Option(min=2, help="Devices of a round.")] = 100,
    fleet: Annotated[int, typer.Option(min=2, help="All devices.")] = 10_000,
    loss: Annotated[float, typer.Option(help="How often a full device may have to leave an item out.")] = 1e-6,
    ring_bits: Annotated[int, typer.Option(help="32 or 64.")] = 32,
    seconds: Annotated[float, typer.Option(min=0.05, help="How long to measure this machine's kernel.")] = 1.0,
    json: AsJson = False,
) -> None:
    """Say what a catalogue and a fleet cost: bytes of a device, time and memory of each server, lost items."""
    from secemb_tools.plan import PlanInput, cost

    with refusals():
        given = PlanInput.of(
            catalogue,
            items=items,
            capacity=capacity,
            width=width,
            dense_size=dense_size,
            cohort=cohort,
            fleet=fleet,
            loss=loss,
            ring_bits=ring_bits,
        )
        with output.busy("measuring this machine's kernel"):
            facts = cost(given, seconds=seconds)
        output.show_facts(facts, as_json=json)
