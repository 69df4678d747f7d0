"""The `secemb` command, and its simulation for programs: `secemb_tools.simulate(devices=1000, rounds=50)`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secemb_tools.simulation.grid import grid
    from secemb_tools.simulation.run import Run
    from secemb_tools.simulation.simulate import simulate

__all__ = ["Run", "grid", "simulate"]


def __getattr__(name: str) -> Any:
    """Import the simulation on first use: the command line must start quickly."""
    if name == "simulate":
        from secemb_tools.simulation.simulate import simulate

        return simulate
    if name == "grid":
        from secemb_tools.simulation.grid import grid

        return grid
    if name == "Run":
        from secemb_tools.simulation.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
