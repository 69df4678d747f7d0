"""`make loadtest` in its smallest setting, with both transports."""

from pathlib import Path

import pytest
from tests.e2e.commands import check_shape, invoke, json_of, read_json

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
