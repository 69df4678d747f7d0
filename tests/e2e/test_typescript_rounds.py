"""Rounds in which devices in Python and in TypeScript take part together."""

import asyncio
import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from tests.e2e.typescript import PACKAGE, needs_typescript
from tests.unit.sessions import make_round, make_task

from secemb_lab.party_round import PartyRound, agree
from secemb_sdk import Contributed, Device, Ended, Policy
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.table import TableFormat
from secemb_tools.local import Pair

pytestmark = needs_typescript

ITEMS, WIDTH = 60, 5
TASK = TaskSpec(
    name="mixed",
    items=ITEMS,
    row_width=WIDTH,
    dense_size=0,
    capacity=20,
    tables=3,
    bins=10,
    ring_bits=32,
    fraction_bits=16,
    bound=2**24,
    cohort=4,
    min_cohort=4,
    rounds=2,
    join_seconds=60,
    upload_seconds=120,
    norm_bound=2**22,
    centre="3",
)
# With both options that shorten messages.
SHORT = replace(TASK, ring_bits=24, fraction_bits=12, row_bits=16, bound=2**20, norm_bound=2**19)


@pytest.mark.parametrize("bits", [24, 32, 64])
def test_the_sum_of_a_mixed_round_is_that_of_all_updates_to_the_last_bit(bits: int) -> None:
    task = make_task(ring_bits=bits, fraction_bits=12, dense_size=3, bound=2**14)
    round_, random = make_round(task), np.random.default_rng(bits)
    ours, theirs = ([_contribution(task, random) for _ in range(2)] for _ in range(2))
    table = random.standard_normal((task.items, task.row_width), dtype=np.float32)
    parties = [PartyRound(round_, party, table) for party in (0, 1)]
    for items, updates, dense in ours:
        session = DeviceSession(round_, items)
        for party, keys in zip(parties, session.keys, strict=True):
            party.keys(session.session_id, keys)
        for party, message in zip(parties, session.write(items, updates, dense), strict=True):
            party.update(session.session_id, message)
    asked = {
        "task": task.encode().decode(),
        "round": round_.encode().decode(),
        "sessions": [
            {"items": items.tolist(), "updates": updates.reshape(-1).tolist(), "dense": dense.tolist()}
            for items, updates, dense in theirs
        ],
    }
    done = subprocess.run(
        ["node", PACKAGE / "dist" / "test" / "messages.js"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    for made in json.loads(done.stdout):
        assert made["truncated"] == 0
        for number, party in enumerate(parties):
            party.keys(bytes.fromhex(made["id"]), bytes.fromhex(made["keys"][number]))
            party.update(bytes.fromhex(made["id"]), bytes.fromhex(made["update"][number]))
    counted = agree(parties[0], parties[1])
    assert len(counted) == 4
    shares = [party.share(counted) for party in parties]
    rows, dense_sum = np.zeros_like(shares[0].rows), np.zeros_like(shares[0].dense)
    for items, updates, dense in [*ours, *theirs]:
        rows[items] += task.ring.encode(updates)
        dense_sum += task.ring.encode(dense)
    assert np.array_equal(task.ring.reduce(shares[0].rows + shares[1].rows), task.ring.reduce(rows))
    assert np.array_equal(task.ring.reduce(shares[0].dense + shares[1].dense), task.ring.reduce(dense_sum))


def _contribution(task: TaskSpec, random: np.random.Generator) -> tuple[Any, Any, Any]:
    items = random.choice(task.items, size=2, replace=False).astype(np.int64)
    return items, random.uniform(-1, 1, (2, task.row_width)), random.uniform(-1, 1, task.dense_size)


@pytest.mark.asyncio
@pytest.mark.parametrize(("task", "relayed"), [(SHORT, True), (TASK, False)], ids=["short, relayed", "usual, direct"])
async def test_real_servers_count_both_kinds_of_devices_and_recommend_to_both(
    tmp_path: Path, task: TaskSpec, relayed: bool
) -> None:
    pair = Pair(tmp_path / "pair", task, relayed=relayed)
    with pair.running():
        theirs = [_participant(tmp_path, pair, number, relayed=relayed) for number in range(2)]
        ours = [_python_device(tmp_path, pair, number) for number in range(2)]
        *found, first, second = await asyncio.gather(*theirs, *ours)
    for said in found:
        assert {one.get("trouble") for one in said["contributed"]} == {None}
        assert {one["transport"] for one in said["receipts"][0]} == {"relayed" if relayed else "direct"}
        assert [(one["round"], one["complete"], one["published"]) for one in said["receipts"][0]] == [
            (0, True, True),
            (1, True, True),
        ]
        assert said["detections"] == [[]]
        assert {len(one) for one in (*said["recommended"], *said["exactly"])} == {5}
        assert [one for one in said["copies"][0] if "since" not in one] == ["?format=int8"], "then what has changed"
        assert len(said["copies"][0]) >= 2
        assert len(said["ranked"][0]) == 8
    assert [[outcome.receipt.round for outcome in done] for done in (first, second)] == [[0, 1], [0, 1]]


async def _python_device(folder: Path, pair: Pair, number: int) -> list[Contributed]:
    done: list[Contributed] = []
    home, task, policy = folder / f"python{number}", pair.task.task_id.hex(), Policy(pace_seconds=0.2)
    async with Device.open(home=home, servers=pair.urls, task=task, policy=policy) as device:
        device.log_many({item: 1.0 + item % 5 for item in range(number, ITEMS, 7)})
        while not isinstance(outcome := await device.contribute(), Ended):
            if isinstance(outcome, Contributed):
                done.append(outcome)
                await _ended(pair, outcome.receipt.round)
            await asyncio.sleep(0.3)
    return done


async def _ended(pair: Pair, round_: int) -> None:
    """Wait until a round has ended: without a promise of privacy a device may take another seat of the same one."""
    address = f"{pair.urls[0]}/v1/tasks/{pair.task.task_id.hex()}"
    async with httpx.AsyncClient(trust_env=False) as client:
        while True:
            if (await client.get(address)).json()["rounds"]["until"] >= round_:
                return
            await asyncio.sleep(0.3)


async def _participant(folder: Path, pair: Pair, number: int, *, relayed: bool) -> dict[str, list[Any]]:
    config = {
        "home": str(folder / f"typescript{number}"),
        "servers": pair.urls,
        "task": pair.task.task_id.hex(),
        "ratings": [[item, 1.0 + item % 5] for item in range(number + 2, ITEMS, 5)],
        "rounds": TASK.rounds,
        "exact": TableFormat.exact(pair.task.row_bits),
        **({} if relayed else {"transport": "direct"}),
    }
    program = PACKAGE / "dist" / "test" / "participant.js"
    process = await asyncio.create_subprocess_exec(
        "node",
        str(program),
        json.dumps(config),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    said: dict[str, list[Any]] = {}
    for line in out.decode().splitlines():
        ((name, value),) = json.loads(line).items()
        said.setdefault(name, []).append(value)
    return said
