"""Which engine a server has: without Ray it starts with threads, and says what is missing for the other."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from time import sleep

import pytest
from tests.unit.local_workers import LocalRay, local_engine
from tests.unit.sessions import SHAPES, bit_table, make_round, make_task
from tests.unit.test_settings import install

from secemb_party import assembly
from secemb_party.compute.ray.messages import Options
from secemb_party.compute.slots import SlotTable, slot_ranges, worker_bytes
from secemb_party.compute.threads import ThreadCompute, Workers
from secemb_party.errors import SettingsError
from secemb_party.metrics import Metrics
from secemb_party.settings import load_settings
from secemb_shared.messages import TaskSpec

RAY = {"SECEMB_COMPUTE__ENGINE": "ray"}


def test_ray_that_is_not_installed_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembly, "find_spec", lambda _name: None)
    settings = load_settings(install(0, tmp_path), RAY)
    workers = Workers(threads=1)
    with pytest.raises(SettingsError, match=r"secemb\[ray\]"):
        assembly.open_compute(settings, make_task(), workers, Metrics())
    without = load_settings(install(0, tmp_path), {})
    assert isinstance(assembly.open_compute(without, make_task(), workers, Metrics()), ThreadCompute)
    workers.close()


def test_too_little_memory_for_a_worker_is_refused_at_the_start(tmp_path: Path) -> None:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    settings = load_settings(install(0, tmp_path), RAY | {"SECEMB_COMPUTE__MEMORY_BYTES": "1000"})
    workers = Workers(threads=1)
    with pytest.raises(SettingsError, match=r"compute.memory_bytes: a worker of this task needs about [\d,]+ bytes"):
        assembly.open_compute(settings, make_task(), workers, Metrics())
    workers.close()


@pytest.mark.parametrize("task", SHAPES.values(), ids=SHAPES.keys())
@pytest.mark.parametrize("workers", [1, 3])
def test_the_memory_of_a_worker_is_what_its_arrays_need(task: TaskSpec, workers: int) -> None:
    tables = [SlotTable(make_round(task), one, bit_table(task)) for one in slot_ranges(task.geometry, workers)]
    largest = max(2 * table.bytes + 2 * table.empty_sums().nbytes for table in tables)
    assert largest <= worker_bytes(task, workers) <= 1.25 * largest + 1000


def test_a_server_never_imports_ray() -> None:
    """Its own process does: with Ray's engine too, the server lives on when Ray ends everything that is connected."""
    code = (
        "import sys; import secemb_server0.app, secemb_server1.app, secemb_party.compute.ray.remote;"
        "sys.exit('ray' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_reason_names_no_address_and_is_logged_with_it(caplog: pytest.LogCaptureFixture) -> None:
    ray = LocalRay()
    ray.away = "nothing listens there"
    with local_engine(ray, options=Options(address="10.1.2.3:6379", workers=1, memory_bytes=None)) as engine:
        while "reached" not in (engine.fault() or ""):
            sleep(0.01)
        assert "10.1.2.3" not in (engine.fault() or "")
        assert 'set [compute] engine = "threads"' in (engine.fault() or "")
    assert "Ray cannot be reached at 10.1.2.3:6379 (nothing listens there)" in caplog.text
