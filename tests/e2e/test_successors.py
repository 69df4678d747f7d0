"""Two real servers whose operators add items by commands: the successor runs by itself, and devices follow."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.e2e.commands import json_of, refused
from tests.e2e.servers import Servers, fetch, set_up, wait_for
from tests.e2e.test_device_rounds import take_part

from secemb_sdk import Device, Policy
from secemb_shared.messages import TaskSpec

pytestmark = pytest.mark.timeout(300)
TASK = {"width": 5, "dense-size": 0, "cohort": 2, "min-cohort": 2, "clip": 64, "fraction-bits": 16}
WHY = ("--reason", "tonight's films")


def films(path: Path, *ids: str) -> Path:
    path.write_text("".join(["item,title\n", *(f"{one},Film {one}\n" for one in ids)]))
    return path


def at(servers: Servers, role: int) -> tuple[object, ...]:
    file = servers.folder / f"operator{role}.token"
    file.write_text(servers.operator_tokens[role])
    return "--server", servers.pair[role].operator_url, "--token-file", file


async def round_of(servers: Servers, item: str) -> None:
    """Let the same two devices, which know the first task only, rate an item and finish a round."""
    async with AsyncExitStack() as stack:
        devices = [
            await stack.enter_async_context(
                Device.open(
                    home=servers.folder / f"device{number}",
                    servers=(servers.pair[0].url, servers.pair[1].url),
                    task=servers.task.task_id.hex(),
                    token=servers.tokens[number],
                    policy=Policy(pace_seconds=0.0, seconds=100.0),
                )
            )
            for number in range(2)
        ]
        for device in devices:
            await device.recommend(1)  # follows the task, and knows the items by their ids then
            device.log(item=item, rating=4.0)
        await asyncio.gather(*(take_part(device) for device in devices))


def published(servers: Servers, task: str) -> list[tuple[int]]:
    statement = f"SELECT count(*) FROM rounds WHERE hex(task_id) = upper('{task}') AND state = 'published'"
    return [server.ask(statement)[0] for server in servers.pair]


def states(servers: Servers, role: int) -> dict[str, str]:
    return {row["task"]: row["state"] for row in json_of("task list", *at(servers, role))}


def test_operators_add_items_and_devices_follow_also_after_a_restart(tmp_path: Path) -> None:
    first = [f"tt{row:03}" for row in range(200)]
    changes: dict[str, object] = {**TASK, "catalogue": films(tmp_path / "first.csv", *first)}
    servers = set_up(tmp_path, changes=changes, relayed=True, without=("items",))
    try:
        servers.start()
        asyncio.run(round_of(servers, "tt007"))
        later = films(tmp_path / "later.csv", "new1", *first[3:], "new2")
        zero, one, out = at(servers, 0), at(servers, 1), tmp_path / "next"
        made = json_of("task succeed", "--catalogue", later, "--capacity", 8, "--out", out, *zero, *WHY)
        assert (made["items"], made["kept"], made["new"], made["retired"]) == (199, 197, 2, 3)
        assert json_of("task agree", "--withdraw", *zero, *WHY)["agreement"] is None
        again = json_of("task succeed", "--catalogue", later, "--capacity", 8, *zero, *WHY)
        assert again == made
        assert "same row_width" in refused("task", "agree", wider(out / "task.json"), *one, *WHY)
        assert json_of("task agree", out / "task.json", *one, *WHY)["agreement"] == made["agreement"]
        old, new = servers.task.task_id.hex(), str(made["successor"])
        after = {old: "succeeded", new: "running"}
        wait_for("the successor runs", lambda: [states(servers, role) for role in (0, 1)] == [after] * 2)
        asyncio.run(round_of(servers, "new2"))
        for server in servers.pair:
            assert server.stop() == 0
        for server in servers.pair:
            server.launch()
        for server in servers.pair:
            server.await_alive()
            assert fetch(f"{server.url}/v1/tasks/{old}/successor").json()["signatures"]
        wait_for("both are ready", lambda: all(server.get("/readyz") == 200 for server in servers.pair))
        asyncio.run(round_of(servers, "new1"))
        wait_for("all rounds end", lambda: [published(servers, one) for one in (old, new)] == [[(1,)] * 2, [(2,)] * 2])
        assert json_of("status", *zero, *one)["servers"][0]["task"] == servers.task.name
        shown = json_of("task show", out / "task.json")
        assert (shown["predecessor"], shown["identity0"]) == (old, servers.task.identity0)
    finally:
        servers.end()


def wider(file: Path) -> Path:
    """Return a task that is not a possible successor."""
    text = file.read_text().replace('"row_width":5', '"row_width":6')
    TaskSpec.decode(text.encode())
    made = file.parent.with_name("wider") / "task.json"
    made.parent.mkdir()
    made.write_text(text)
    (made.with_name("catalogue.csv")).write_bytes(file.with_name("catalogue.csv").read_bytes())
    return made
