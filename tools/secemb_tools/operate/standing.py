"""Where servers stand, as their operators may know it."""

from typing import Any

from secemb_shared.messages import TaskSpec
from secemb_tools.operate.operator_line import OperatorLine

_ROUND = (
    *("number", "kind", "state", "admitted", "keys", "updates", "counted"),
    *("opened_at", "join_until", "upload_until"),
)


def standing_of(lines: list[OperatorLine]) -> dict[str, Any]:
    """Return the state of each server, and whether two of them agree."""
    servers = [_server(line) for line in lines]
    pair = len(servers) == 2
    return {
        "servers": servers,
        "same_task": servers[0]["task_id"] == servers[1]["task_id"] if pair else None,
        "digests_equal": servers[0]["model_digest"] == servers[1]["model_digest"] if pair else None,
    }


def _server(line: OperatorLine) -> dict[str, Any]:
    overview, ready = line.get("overview"), line.readiness()
    task = TaskSpec.decode(overview["task"].encode())
    published = [one for one in line.get("models") if one["published_at"] is not None]
    newest = max(published, key=lambda one: one["version"], default=None)
    return {
        "url": line.url,
        "role": overview["role"],
        "ready": ready.get("ready", False),
        "checks": [one for one in ready.get("checks", []) if not one.get("ok")],
        "task": task.name,
        "task_id": overview["task_id"],
        "cohort": task.cohort,
        "round": _round(overview["round"]),
        "model_version": None if newest is None else newest["version"],
        "model_digest": None if newest is None else newest["digest"],
        "refusals": line.get("refusals"),
    }


def _round(found: dict[str, Any] | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {name: found[name] for name in _ROUND}
