"""The memory of a device as the benchmark tells it: all of it, torch's too, and not with the catalogue."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from secemb_lab import child_environment
from secemb_lab.bench import device_process
from secemb_lab.bench.devices import Case
from secemb_sdk.models import MatrixFactorisation
from secemb_shared.messages import RoundSpec
from secemb_tools.catalogues import PaperCatalogue

ALLOCATED = 64 << 20
NOISE = 1 << 20  # the system counts in pages, and not every page at once
ALLOCATING = f"""
import json, tracemalloc, torch
from secemb_lab.bench.device_process import HighWater, highest
tracemalloc.start()
memory = HighWater()
for _ in range(3):
    numbers = torch.ones({ALLOCATED // 4})
    del numbers
print(json.dumps([memory.growth(), highest(), tracemalloc.get_traced_memory()[1]]))
"""


def test_what_torch_allocates_is_seen_once_and_not_by_tracemalloc() -> None:
    """In a process of its own: in this one, others have moved the mark."""
    done = subprocess.run(
        [sys.executable, "-c", ALLOCATING], env=child_environment(), capture_output=True, text=True, check=True
    )
    growth, highest, traced = json.loads(done.stdout)
    assert ALLOCATED - NOISE < growth < 2 * ALLOCATED
    assert highest > growth
    assert traced < ALLOCATED // 8


def test_without_proc_the_system_is_asked_in_another_way(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seen = device_process.highest()
    for name in ("_STATUS", "_RESET"):
        monkeypatch.setattr(device_process, name, tmp_path / "nothing" / "here")
    assert device_process.highest() >= seen // 2
    assert device_process.HighWater().growth() >= 0


def test_a_device_does_not_grow_with_the_catalogue() -> None:
    cases = [Case(PaperCatalogue("made up", items, 100), MatrixFactorisation()) for items in (10**4, 4 * 10**5)]
    small, large = (case.memory("mf") for case in cases)
    assert 0 < small["peak_bytes"] < small["process_bytes"]
    deeper = size_of_trees(cases[1].round) / size_of_trees(cases[0].round)
    assert large["peak_bytes"] <= max(1.0, deeper) * small["peak_bytes"] + NOISE


def size_of_trees(round_: RoundSpec) -> int:
    return round_.task.geometry.slots * round_.task.geometry.depth
