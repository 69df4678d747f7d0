"""Requests that arrive together are computed together, and each gets its own result."""

import asyncio
from collections.abc import Sequence

import pytest

from secemb_party.compute.gather import Gather

pytestmark = pytest.mark.asyncio


class Kernel:
    """Doubles numbers once it is let go."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []
        self.go = asyncio.Event()

    async def double(self, numbers: Sequence[int]) -> list[int]:
        self.calls.append(list(numbers))
        await self.go.wait()
        if 13 in numbers:
            raise ValueError("thirteen")
        return [2 * one for one in numbers]


async def test_the_first_request_does_not_wait_and_later_ones_share_calls() -> None:
    kernel = Kernel()
    gather = Gather(kernel.double, most=3, calls=1)
    asked = [asyncio.create_task(gather.get([number])) for number in range(6)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert kernel.calls == [[0]]
    kernel.go.set()
    assert [await one for one in asked] == [[2 * number] for number in range(6)]
    assert kernel.calls == [[0], [1, 2, 3], [4, 5]]


async def test_a_failure_reaches_those_in_its_call_and_no_others() -> None:
    kernel = Kernel()
    kernel.go.set()
    gather = Gather(kernel.double, most=2, calls=1)
    found = await asyncio.gather(*(gather.get([one]) for one in (1, 13, 2, 3)), return_exceptions=True)
    assert found[0] == [2]
    assert isinstance(found[1], ValueError)
    assert found[3] == [6]
    assert await gather.get([5, 6, 7]) == [10, 12, 14]


async def test_who_no_longer_waits_is_not_computed() -> None:
    kernel = Kernel()
    gather = Gather(kernel.double, most=8, calls=1)
    first, second, third = (asyncio.create_task(gather.get([number])) for number in range(3))
    await asyncio.sleep(0)
    second.cancel()
    kernel.go.set()
    assert (await first, await third) == ([0], [4])
    assert kernel.calls == [[0], [2]]
