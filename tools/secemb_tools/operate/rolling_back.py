"""Going back to an older version: the operator's wish to server 0, and what becomes of it."""

import time
from typing import Any

from secemb_tools.operate.operator_line import OperatorLine
from secemb_tools.operate.refusal import OperationError

_PAUSE = 0.2


def published_version(line: OperatorLine) -> int:
    """Return the version that devices read now."""
    overview = line.get("overview")
    if overview["role"] != 0:
        raise OperationError("server 0 decides about the model; give its address and its operator's token")
    if overview["model_version"] is None:
        raise OperationError("no version is published yet; start both servers first")
    return int(overview["model_version"])


def roll_back(line: OperatorLine, version: int, *, seen: int, wait: float) -> dict[str, Any]:
    """Ask for an older version, wait until the wish has been carried out, and return what became of it."""
    wish = line.post(f"models/{version}/rollback", seen=seen)
    end = time.monotonic() + wait
    while wish["ended_at"] is None and time.monotonic() < end:
        time.sleep(_PAUSE)
        wish = next(one for one in line.get("rollbacks") if (one["source"], one["seen"]) == (version, seen))
    if wish["reason"] is not None:
        raise OperationError(f"version {version} cannot come back: {wish['reason']}")
    return {
        "source": version,
        "seen": seen,
        "made": wish["made"],
        "state": "done" if wish["ended_at"] is not None else "waits for the end of the open round",
    }
