"""A cache of slow results: made once, kept for a while, and failures are not kept."""

import asyncio

import pytest

from secemb_party.async_cache import AsyncCache

pytestmark = pytest.mark.asyncio


class Kitchen:
    """Makes results, slowly enough that several can wait for one."""

    def __init__(self) -> None:
        self.made: list[str] = []

    async def make(self, key: str) -> str:
        self.made.append(key)
        await asyncio.sleep(0)
        if key == "bad":
            raise ValueError(key)
        return key.upper()


async def test_a_result_is_made_once_however_many_ask() -> None:
    kitchen, cache = Kitchen(), AsyncCache[str, str](2)
    asked = [cache.get("a", lambda: kitchen.make("a")) for _ in range(5)]
    assert await asyncio.gather(*asked) == ["A"] * 5
    assert kitchen.made == ["a"]


async def test_the_results_that_were_asked_for_last_are_kept() -> None:
    kitchen, cache = Kitchen(), AsyncCache[str, str](2)
    for key in ("a", "b", "a", "c", "a", "b"):
        await cache.get(key, lambda key=key: kitchen.make(key))  # type: ignore[misc]
    assert kitchen.made == ["a", "b", "c", "b"]


async def test_a_failure_reaches_everyone_who_waits_and_is_not_kept() -> None:
    kitchen, cache = Kitchen(), AsyncCache[str, str](2)
    asked = [cache.get("bad", lambda: kitchen.make("bad")) for _ in range(2)]
    assert [str(one) for one in await asyncio.gather(*asked, return_exceptions=True)] == ["bad", "bad"]
    with pytest.raises(ValueError, match="bad"):
        await cache.get("bad", lambda: kitchen.make("bad"))
    assert kitchen.made == ["bad", "bad"]


async def test_a_caller_that_goes_away_does_not_stop_the_others() -> None:
    kitchen, cache = Kitchen(), AsyncCache[str, str](2)
    impatient = asyncio.ensure_future(cache.get("a", lambda: kitchen.make("a")))
    patient = asyncio.ensure_future(cache.get("a", lambda: kitchen.make("a")))
    await asyncio.sleep(0)
    impatient.cancel()
    assert await patient == "A"
    assert kitchen.made == ["a"]


async def test_unwanted_results_are_dropped() -> None:
    kitchen, cache = Kitchen(), AsyncCache[str, str](3)
    for key in ("a", "b"):
        await cache.get(key, lambda key=key: kitchen.make(key))  # type: ignore[misc]
    cache.drop(lambda key: key == "a")
    for key in ("a", "b"):
        await cache.get(key, lambda key=key: kitchen.make(key))  # type: ignore[misc]
    assert kitchen.made == ["a", "b", "a"]
