"""The `secemb` command, and its simulation for programs: `secemb_tools.simulate(devices=1000, rounds=50)`."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from secemb_tools.simulation.simulate import simulate

__all__ = ["simulate"]


def __getattr__(name: str) -> Any:
    """Import the simulation on first use: the command line must start quickly."""
    if name == "simulate":
        from secemb_tools.simulation.simulate import simulate

        return simulate
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
