"""`make loadtest`, `make memory` and `make pacing` in their smallest settings."""

from pathlib import Path

import pytest
from tests.e2e.commands import check_shape, invoke, json_of, read_json

from secemb_lab.loadtest.memory import TOLERANCE, errors

FRAME = 1000  # bytes beyond messages: acknowledgements, which a plan leaves out


@pytest.mark.parametrize(("transport", "named"), [("direct", "per_device"), ("relayed", "relayed")])
def test_devices_move_what_the_plan_says_of_their_transport(transport: str, named: str, tmp_path: Path) -> None:
    words = ["loadtest", "--devices", "2", "--rounds", "2", "--catalogue", "ML100K", "--transport", transport]
    done = invoke(*words, "--output", tmp_path / "figures.json", "--json")
    assert done.exit_code == 0, done.output
    assert "Sessions against two servers" in done.stderr
    found = read_json(done.stdout)
    check_shape("loadtest", found)
    assert found == read_json((tmp_path / "figures.json").read_text())
    (run,) = found["runs"]
    assert (run["transport"], run["sessions"], run["failed"]) == (transport, 4, 0)
    plan = json_of("plan", "--catalogue", "ML100K", "--seconds", 0.05)
    for way in ("up", "down"):
        assert 0 <= run[f"bytes_{way}_per_device"] - plan[f"bytes_{way}_{named}"] < FRAME, way


def test_the_memory_of_real_servers_is_compared_with_the_plan(tmp_path: Path) -> None:
    done = invoke("memory", "--items", "2000", "--output", tmp_path / "figures.json", "--json")
    assert done.exit_code in (0, 1), done.output  # of so few items the libraries take nearly all
    assert "Peak memory of real servers" in done.stderr
    found = read_json(done.stdout)
    check_shape("memory", found)
    (run,) = found["runs"]
    assert run["items"] == 2000
    assert all(50e6 < peak < 1e9 for peak in run["measured_bytes"])
    assert done.exit_code == int(any(abs(error) > TOLERANCE for error in errors(run)))


def test_simulated_fleets_reach_their_goals_and_are_drawn(tmp_path: Path) -> None:
    done = invoke("pacing", "--quick", "--devices", "1000", "--output", tmp_path / "figures.json", "--json")
    assert done.exit_code == 0, done.output
    assert "Fleets in virtual time" in done.stderr
    found = read_json(done.stdout)
    check_shape("pacing", found)
    assert {run["scenario"]["devices"] for run in found["runs"]} == {1000}
    assert len(list(tmp_path.glob("figures-*.svg"))) == len(found["runs"])
