"""The code in docs/sdk.md runs as it stands there, against two real servers."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.servers import Servers, set_up

GUIDE = Path(__file__).parents[2] / "docs" / "sdk.md"
ITEMS = {"items": 2000, "width": 9, "capacity": 20, "dense-size": 0, "clip": 64, "fraction-bits": 16}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    waiting = {"cohort": 9, "min-cohort": 2, "join-seconds": 600, "upload-seconds": 600}
    running = set_up(tmp_path_factory.mktemp("guide"), devices=3, changes=ITEMS | waiting)
    try:
        running.start()
        yield running
    finally:
        running.end()


@pytest.fixture(scope="module")
def guide() -> dict[str, Any]:
    """Return what the guide's code defines."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        exec(compile(block, str(GUIDE), "exec"), names)
    return names


def options(running: Servers, home: Path, number: int) -> tuple[Path, tuple[str, str], str, str]:
    urls = running.pair[0].url, running.pair[1].url
    return home, urls, running.task.task_id.hex(), running.tokens[number]


def test_the_ten_lines_contribute_and_recommend(
    servers: Servers, guide: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asyncio.run(guide["main"](*options(servers, tmp_path / "home", 0)))
    shown = capsys.readouterr().out
    assert shown.startswith("Contributed(")
    assert shown.count("Recommendation(item=") == 10


def test_the_blocking_lines_do_the_same(
    servers: Servers, guide: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    guide["blocking_main"](*options(servers, tmp_path / "home", 1))
    assert capsys.readouterr().out.startswith("Contributed(")


def test_the_loop_waits_as_long_as_it_is_told(guide: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [guide["Contributed"](None), guide["NotNow"](7.0, "no round"), guide["Dropped"]("conflict", 5.0)]
    slept: list[float] = []

    class Device:
        async def contribute(self) -> object:
            if not outcomes:
                raise KeyboardInterrupt
            return outcomes.pop(0)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(guide["asyncio"], "sleep", sleep)
    with pytest.raises(KeyboardInterrupt):
        guide["take_part"](Device()).send(None)
    assert slept == [7.0, 5.0]


def test_the_policy_can_be_made(guide: dict[str, Any]) -> None:
    assert guide["policy"].pace_seconds == 3.0
