"""Two operators steer two real servers with commands: pauses, a closed and an aborted round, a drain and restarts."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.devices.over_http import Device, check_published, gather
from tests.e2e.commands import invoke, json_of, refused, run
from tests.e2e.servers import Server, Servers, fetch, secemb, set_up, wait_for

pytestmark = pytest.mark.timeout(200)
DATABASE, DISKS = "the database moves", "new disks"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    made = set_up(tmp_path_factory.mktemp("pair"), changes={"join-seconds": 300, "upload-seconds": 600})
    try:
        made.start()
        yield made
    finally:
        made.end()


def at(servers: Servers, role: int) -> tuple[object, ...]:
    """Return how an operator names their server."""
    file = servers.folder / f"operator{role}.token"
    file.write_text(servers.operator_tokens[role])
    return "--server", servers.pair[role].operator_url, "--token-file", file


def control(servers: Servers, role: int) -> Any:
    (found,) = json_of("status", *at(servers, role), code=0 if servers.pair[role].get("/readyz") == 200 else 1)[
        "servers"
    ]
    return found["control"]


def metrics(server: Server) -> str:
    return fetch(f"{server.metrics_url}/metrics").text


def phase(server: Server) -> str:
    one = r'^secemb_round_phase{phase="([a-z-]+)",task="[0-9a-f]{8}"} 1\.0$'
    (found,) = re.findall(one, metrics(server), re.MULTILINE)
    return str(found)


async def knock(servers: Servers) -> httpx.Response:
    """Ask once to join, with a token of no device: who is turned away is not asked for it."""
    path = f"{servers.pair[0].url}/v1/tasks/{servers.task.task_id.hex()}/join"
    async with httpx.AsyncClient(timeout=10.0) as client:
        return await client.post(path, json={"session": "00" * 16}, headers={"authorization": "Bearer nobody"})


def await_end(servers: Servers, number: int, state: str) -> None:
    wait_for(f"round {number} is {state}", lambda: [one.state(number) for one in servers.pair] == [state, state])


@pytest.mark.asyncio
async def test_either_operator_pauses_and_both_must_resume_whatever_is_restarted(servers: Servers) -> None:
    zero, one = at(servers, 0), at(servers, 1)
    assert json_of("task pause", *one, "--reason", DATABASE)["paused"]["reason"] == DATABASE
    wait_for("server 0 has heard of it", lambda: control(servers, 0)["peer"] is not None)
    wait_for("server 0 shows it", lambda: phase(servers.pair[0]) == "peer-paused")
    shown = run("status", *zero)
    assert "waiting for the other server" in shown
    assert "server 1: paused since" in " ".join(shown.split())
    assert DATABASE in shown
    turned_away = await knock(servers)
    assert turned_away.status_code == 202
    assert turned_away.json()["paused"] is True
    assert int(turned_away.headers["retry-after"]) >= 60
    assert "paused by first since" in " ".join(run("task", "pause", *zero, "--reason", DISKS).split())
    assert json_of("task resume", *one)["paused"] is None
    servers.pair[0].kill()
    servers.pair[0].start()
    wait_for("server 1 has heard of server 0's", lambda: control(servers, 1)["peer"] is not None)
    assert control(servers, 0)["paused"]["reason"] == DISKS
    wait_for("server 0 shows it", lambda: phase(servers.pair[0]) == "paused")
    assert (await knock(servers)).status_code == 202
    assert "taking part" in run("task", "resume", *zero)
    wait_for("devices are let in", lambda: phase(servers.pair[0]) == "waiting")
    log = servers.pair[0].log.read_text()
    assert "operator: pause" in log
    assert DISKS in log


@pytest.mark.asyncio
async def test_a_round_is_closed_early_with_an_exact_sum_and_another_is_aborted_by_server_1(servers: Servers) -> None:
    zero, one = at(servers, 0), at(servers, 1)
    devices = await gather(servers, 3)
    number = devices[0].session.round.number
    await devices[0].send_update()
    assert "wait for 1 more" in refused("round", "close", *zero, "--reason", "late")
    await devices[1].send_update()
    assert "ask its operator" in refused("round", "close", *one, "--reason", "late")
    closed = json_of("round close", *zero, "--reason", "late")
    assert (closed["round"], closed["state"], closed["counted"]) == (number, "published", 2)
    check_published(servers, devices[:2])
    others = await gather(servers, 2)
    number = others[0].session.round.number
    for device in others:
        await device.send_update([1])
    ended = json_of("round abort", *one, "--reason", DATABASE)
    why = f"by the operator of server 1: {DATABASE}"
    assert (ended["state"], ended["reason"]) == ("aborted", why)
    await_end(servers, number, "aborted")
    reasons = [server.ask(f"SELECT reason FROM rounds WHERE number = {number}") for server in servers.pair]
    assert reasons == [[(why,)], [(why,)]]
    assert "state aborted" in " ".join(run("round", "abort", *zero, "--reason", "once more").split())
    for device in (*devices, *others):
        await device.close()


@pytest.mark.asyncio
async def test_a_drained_server_finishes_its_round_is_stopped_and_takes_part_again_after_its_start(
    servers: Servers,
) -> None:
    zero, server = at(servers, 0), servers.pair[0]
    devices = await gather(servers, 2)
    number = devices[0].session.round.number
    not_yet = json_of("drain", *zero, "--reason", DISKS, "--wait", 0, code=1)
    assert (not_yet["safe_to_stop"], not_yet["unfinished"]) == (False, f"round {number} is open")
    assert server.get("/readyz") == 200, "who has joined must still reach it"
    assert "draining" in run("status", *zero)
    assert (await knock(servers)).status_code == 202
    for device in devices:  # who has joined is not turned away
        await device.send_update()
    assert "safe to stop yes" in " ".join(run("drain", *zero, "--reason", DISKS).split())
    await_end(servers, number, "published")
    check_published(servers, devices)
    # Each listener gives the same answer for a second.
    wait_for("it is not ready", lambda: server.get("/readyz") == 503)
    wait_for("the status says so", lambda: invoke("status", *zero).exit_code == 1)
    assert "drained, safe to stop" in " ".join(run("status", *zero, code=1).split())
    wait_for(
        "the metric says so", lambda: re.search(r"^secemb_drained{.*} 1.0$", metrics(server), re.MULTILINE) is not None
    )
    assert server.stop() == 0
    server.start()
    assert control(servers, 0)["draining"] is None
    later = Device(servers, 0)
    assert await later.join() == number + 1
    assert "give --reason" in refused("drain", *zero, code=2)
    assert json_of("drain", *zero, "--end")["draining"] is None
    for device in (*devices, later):
        await device.close()


def test_a_read_only_token_steers_nothing_and_what_was_done_is_recorded(servers: Servers) -> None:
    folder = servers.pair[0].folder
    made = json.loads(secemb("operator", "add", "onlooker", "--config", folder, "--json"))
    file: Path = servers.folder / "onlooker.token"
    file.write_text(made["token"])
    onlooker = ("--server", servers.pair[0].operator_url, "--token-file", file)
    for words in (("task", "pause"), ("task", "resume"), ("drain",), ("round", "abort")):
        assert "needs a token with the role admin" in refused(*words, *onlooker, "--reason", "x")
    zero = at(servers, 0)
    run("task", "pause", *zero, "--reason", DATABASE)
    run("task", "resume", *zero)
    done = json.loads(secemb("operator", "actions", "--config", folder, "--json"))
    # What other tests have done may come before: they may run elsewhere.
    found = [(one["by"], one["what"], one["reason"]) for one in reversed(done) if one["by"] == "first"]
    assert found[-2:] == [("first", "pause", DATABASE), ("first", "resume", None)]
    assert not [one for one in done if one["by"] == "onlooker"]
