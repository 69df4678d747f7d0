"""The goals under each attack."""

from collections.abc import Iterator, Sequence

from secemb_lab.attack.attacks import FIGURES, NONE, REJECTED, WITHIN
from secemb_lab.attack.stage import Figures
from secemb_lab.report.report_file import Goal

LATENCY = 2.0  # multiple of the value without an attack
RMSE = 0.01  # beyond the value without an attack
MEMORY = 300e6  # allowed memory growth of a server


def goals(found: Sequence[Figures], *, quick: bool) -> list[Goal]:
    """Return every goal with its measurement; a quick run omits those that depend on time or on many rounds."""
    return [goal for one in found for goal in _goals(one, quick=quick)]


def _goals(one: Figures, *, quick: bool) -> Iterator[Goal]:
    name = one.attack
    yield Goal.at_least(f"{name}: share of honest devices that finished", one.finished / max(one.devices, 1), 1.0)
    blamed = one.tokens.get("honest", {})
    yield Goal.at_most(f"{name}: sessions of honest devices rejected", blamed.get("rejected", 0), 0)
    for role, grown in enumerate(one.memory_growth):
        yield Goal.at_most(f"{name}: growth of server {role} in bytes", grown, MEMORY)
    if one.kind == REJECTED:
        for role, seen in enumerate(one.seen):
            yield Goal.at_least(f"{name}: sessions rejected by server {role}", seen.get("sessions rejected", 0), 1)
    if one.kind == FIGURES:
        for role, seen in enumerate(one.seen):
            yield Goal.at_least(f"{name}: rounds discarded by server {role}", seen.get("rounds: discarded", 0), 1)
    if one.kind != WITHIN:
        yield Goal.at_most(f"{name}: changed rows that only the attacker has", one.rows_touched, 0)
    if quick or one.attack == NONE.name:
        return
    if one.latency_ratio is not None:
        yield Goal.at_most(f"{name}: latency of honest devices", one.latency_ratio, LATENCY)
    if one.rmse_beyond is not None and one.kind != WITHIN:
        yield Goal.at_most(f"{name}: RMSE increase over no attack", one.rmse_beyond, RMSE)
