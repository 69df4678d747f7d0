"""What half-precision rows and a ring of 24 bits cost in accuracy and save in bytes, on one set of ratings or events.

Devices train in the open: private runs give the same model to the last bit. All runs have the same settings and seeds.
"""

from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from secemb_shared.messages import Sizes
from secemb_tools.simulation.baseline import measure_final
from secemb_tools.simulation.engine import Engine
from secemb_tools.simulation.rounds import PLAIN
from secemb_tools.simulation.scenario import make_world

OPTIONS: tuple[dict[str, int], ...] = ({}, {"row_bits": 16}, {"ring_bits": 24}, {"row_bits": 16, "ring_bits": 24})


def measure(data: Path, model: str, seed: int, chosen: dict[str, Any]) -> str:
    """Return a line of the table: the figures of the final model, and what a device sends and receives relayed."""
    world = make_world(data=data, model=model, seed=seed, patience=0, **chosen)
    engine, task = Engine(world, way=PLAIN), world.task
    while engine.rounds < world.scenario.all_rounds:
        engine.step()
    found, sizes = measure_final(engine) or {}, Sizes.of(task)
    figures = "  ".join(
        f"{name} {kind} {one['value']:.5f}"
        for name, some in found.items()
        if name.startswith("model")
        for kind, one in some.items()
        if isinstance(one, dict) and "value" in one
    )
    return (
        f"rows {task.row_bits}, ring {task.ring_bits} with {task.fraction_bits} fraction bits: {figures}; up"
        f" {sizes.relayed_upload:,} bytes, down {sizes.relayed_download:,}; {engine.counts.clipped:,} of"
        f" {engine.counts.sessions:,} updates clipped, {engine.counts.failed:,} failed"
    )


def lines(arguments: list[str] | None = None) -> Iterator[str]:
    """Yield the table of one set and one model."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--model", default="mf")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--both", action="store_true", help="only without and with both options")
    given = parser.parse_args(arguments)
    for chosen in (OPTIONS[0], OPTIONS[-1]) if given.both else OPTIONS:
        yield measure(given.data, given.model, given.seed, chosen | {"rounds": given.rounds})


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
