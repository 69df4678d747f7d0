"""Settings of simulations that take a moment."""

from typing import Any

SMALL: dict[str, Any] = {
    "devices": 24,
    "cohort": 8,
    "rounds": 5,
    "items": 200,
    "capacity": 20,
    "dimension": 4,
    "evaluate_every": 3,
    "patience": 0,
}
