"""A pair with a published table, and devices that copy it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from tests.simulation.pair import Pair, a_pair

from secemb_party.storage import Model
from secemb_shared.messages.table import CopyShape, TableFormat

FORMATS = pytest.mark.parametrize("format_", list(TableFormat))


@asynccontextmanager
async def a_catalogue(**task: object) -> AsyncIterator[Pair]:
    """Run a pair whose table is not all zeros."""
    fields: dict[str, object] = {"items": 150, "row_width": 5, "bins": 8, "initial_scale": "1"}
    async with a_pair(**(fields | task)) as pair:  # type: ignore[arg-type]
        yield pair


async def get(pair: Pair, role: int, what: str, **headers: str) -> httpx.Response:
    url = f"https://server{role}/v1/tasks/{pair.task.task_id.hex()}/{what}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = await pair.send(role, httpx.Request("GET", url, headers=named))
    assert answer is not None
    return answer


def model_of(pair: Pair, version: int, role: int = 0) -> Model:
    return pair.parties[role].models.load(version)


def encoded(pair: Pair, version: int, format_: TableFormat) -> bytes:
    """Return the full copy that must come out."""
    shape = CopyShape(format=format_, items=pair.task.items, width=pair.task.row_width)
    return shape.encode(model_of(pair, version).rows).tobytes()
