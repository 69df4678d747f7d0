"""Specifications for tests: a task, a round, and their JSON."""

import json
from typing import Any

from tests.unit.sessions import make_round, make_task

from secemb_shared.messages import RoundSpec

TASK = make_task()


ROUND = make_round(TASK, digest=bytes(range(32)))


def document(data: bytes = TASK.encode()) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(data)
    return found


def written(content: object) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()


def decode_round(data: bytes) -> RoundSpec:
    return RoundSpec.decode(data, TASK)
