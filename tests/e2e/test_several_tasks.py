"""Two real servers that run two tasks at once, started, named and stopped by commands, through a restart."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.devices.over_http import check_published, gather
from tests.e2e.commands import json_of, refused
from tests.e2e.servers import TASK, Servers, fetch, secemb, set_up, wait_for

from secemb_party.metric_labels import short_id
from secemb_shared.messages import TaskSpec

pytestmark = [pytest.mark.timeout(200), pytest.mark.asyncio]
WHY = ("--reason", "a second app")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = set_up(tmp_path_factory.mktemp("several"))
    try:
        made.start()
        yield made
    finally:
        made.end()


def at(servers: Servers, role: int) -> tuple[object, ...]:
    file = servers.folder / f"operator{role}.token"
    file.write_text(servers.operator_tokens[role])
    return "--server", servers.pair[role].operator_url, "--token-file", file


async def train(servers: Servers) -> None:
    """Run one round with two devices."""
    devices = await gather(servers, 2)
    number = devices[0].session.round.number
    for device in devices:
        await device.send_update()
    json_of("round close", *at(servers, 0), "--task", servers.task.name, "--reason", "enough")
    check_published(servers, devices)
    assert number == devices[1].session.round.number
    for device in devices:
        await device.close()


async def test_two_tasks_run_on_one_pair_and_one_is_stopped_without_the_other(servers: Servers) -> None:
    zero, one = at(servers, 0), at(servers, 1)
    options = [word for name, value in {**TASK, "name": "second", "items": 90}.items() for word in (f"--{name}", value)]
    secemb("task", "create", "--out", servers.folder / "second", *options)
    file = servers.folder / "second" / "server0" / "task.json"
    second = replace(servers, task=TaskSpec.decode(file.read_bytes()))
    short = short_id(second.task.task_id)
    assert json_of("task start", file, *zero, *WHY)["state"] == "running"
    phase = f'secemb_round_phase{{phase="peer-paused",task="{short}"}} 1.0'
    wait_for("it waits for server 1", lambda: phase in fetch(f"{servers.pair[0].metrics_url}/metrics").text)
    assert servers.pair[0].get("/readyz") == 200
    json_of("task start", file, *one, *WHY)
    assert {row["name"]: row["state"] for row in json_of("task list", *zero)} == {
        "processes": "running",
        "second": "running",
    }
    assert "name one of them with --task" in refused("privacy", "show", *zero)
    await train(second)
    await train(servers)
    status = json_of("status", *zero, "--server", servers.pair[1].operator_url, "--token-file", one[-1])
    assert [(found["task"], found["trained_rounds"]) for found in status["servers"]] == [
        (name, 1) for name in ("processes", "second") * 2
    ]
    assert (status["same_task"], status["digests_equal"]) == (True, True)
    assert json_of("task stop", "processes", *zero, *WHY)["state"] == "stopped"
    servers.pair[0].kill()
    servers.pair[0].start()
    wait_for("the other task is ready", lambda: servers.pair[0].get("/readyz") == 200)
    answer = fetch(f"{servers.pair[0].url}/v1/tasks/{servers.task.task_id.hex()}")
    assert (answer.status_code, answer.json()["type"]) == (503, "urn:secemb:problem:task-stopped")
    await train(second)
    assert "stop it first" in refused("task", "archive", "second", *zero, *WHY, "--yes")
    assert json_of("task archive", "processes", *zero, *WHY, "--yes")["state"] == "archived"
    assert servers.pair[0].ask("SELECT count(*) FROM rounds WHERE share_digest IS NOT NULL") == [(3,)]
    lines = servers.pair[0].log.read_text()
    assert re.search(rf'"event": "round published".*"task": "{short}"', lines)
    assert servers.pair[0].ask("SELECT what, reason FROM actions WHERE what = 'task archive'") == [
        ("task archive", "a second app")
    ]
