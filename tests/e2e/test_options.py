"""Options do what the reference says: what is typed is found in what comes out."""

import tomllib
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file
from tests.e2e.commands import json_of, refused, run
from tests.e2e.place import SMALL_RUN, TASK, Place, Words


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("place"))


# What follows from other settings, or from the ratings that a seed makes up.
BY_RULE = {
    "bound",
    "capacity",
    "centre",
    "spread",
    "lowest",
    "highest",
    "dense_penalty",
    "dense_rate",
    "dimension",
    "fraction_bits",
    "scale",
}
BY_RULE |= {"bias_pull", "bias_rate", "row_pull"}


@pytest.fixture(scope="module")
def plain_run(place: Place) -> Any:
    return json_of("simulate", *SMALL_RUN, "--runs", place.new())


@pytest.mark.parametrize(
    ("option", "value", "member"),
    [
        ("--model", "ncf", "model"),
        ("--seed", 9, "seed"),
        ("--capacity", 10, "capacity"),
        ("--dimension", 5, "dimension"),
        ("--evaluate-every", 2, "evaluate_every"),
        ("--epochs", 2, "epochs"),
        ("--rate", 0.05, "rate"),
        ("--spread", 2.0, "spread"),
        ("--penalty", 0.5, "penalty"),
        ("--schedule", "constant", "schedule"),
        ("--optimiser", "sgd", "optimiser"),
        ("--loss", "bpr", "loss"),
        ("--items", 70, "items"),
        ("--devices", 13, "devices"),
        ("--cohort", 5, "cohort"),
        ("--rounds", 5, "rounds"),
        ("--ring-bits", 24, "ring_bits"),
        ("--fraction-bits", 13, "fraction_bits"),
        ("--row-bits", 16, "row_bits"),
    ],
)
def test_every_option_of_a_simulation_is_in_its_scenario_and_changes_its_table(
    option: str, value: object, member: str, place: Place, plain_run: Any
) -> None:
    found = json_of("simulate", *SMALL_RUN, option, value, "--runs", place.new())
    changed = {name for name, one in found["scenario"].items() if one != plain_run["scenario"][name]}
    assert found["scenario"][member] == value
    assert member in changed <= {member, *BY_RULE}
    assert found["table"] != plain_run["table"] or member == "epochs"  # a private part that is solved takes no steps


def test_a_run_is_compared_saved_and_named_as_asked(place: Place) -> None:
    runs = place.new()
    found = json_of("simulate", *SMALL_RUN, "--runs", runs, "--name", "mine", "--compare", "plain", "--save-every", 3)
    assert [path.name for path in runs.iterdir()] == ["mine"]
    assert (found["name"], found["same_as_plain"], found["plain_table"]) == ("mine", True, found["table"])


@pytest.mark.parametrize(
    ("option", "value", "member", "expected"),
    [
        ("--name", "films", "name", "films"),
        ("--layout", "direct", "slots", 6),
        ("--ring-bits", 64, "overflow_budget", "0.0% of 2^63 used by the largest possible sum"),
        ("--fraction-bits", 8, "precision", 2**-8),
        ("--rounds", 7, "rounds", 7),
        ("--join-seconds", 5, "join_seconds", 5),
        ("--upload-seconds", 70, "upload_seconds", 70),
        ("--optimiser", "sgd", "optimiser", "sgd, rows 0.02, biases 0.05, dense 0.001"),
        ("--row-rate", "0.5", "optimiser", "adam, rows 0.5, biases 0.05, dense 0.001"),
        ("--row-rate", "1e-3", "optimiser", "adam, rows 0.001, biases 0.05, dense 0.001"),
        ("--bias-rate", "0.5", "optimiser", "adam, rows 0.02, biases 0.5, dense 0.001"),
        ("--dense-rate", "0.5", "optimiser", "adam, rows 0.02, biases 0.05, dense 0.5"),
        ("--loss", "bpr", "loss", "bpr"),
        ("--loss", "softmax", "optimiser", "adam, rows 0.02, biases 0.02, dense 0.001"),
        ("--schedule", "constant", "schedule", "constant"),
        ("--row-decay", "0.25", "decay", "rows 0.25, biases 0"),
        ("--bias-decay", "0.25", "decay", "rows 0, biases 0.25"),
        ("--people", 1000, "decay", "rows 0.02, biases 0.007"),
        ("--centre", "-3.5", "ratings", "from any to any, centre -3.5, spread 1"),
        ("--spread", "2.5", "ratings", "from any to any, centre 0, spread 2.5"),
        ("--dense-size", 3, "dense_size", 3),
        ("--seed", 5, "seed", 5),
        ("--initial-scale", "0.5", "initial_scale", "0.5"),
        ("--clip", 2, "clip", 2),
        ("--cohort", 3, "cohort", 3),
        ("--min-cohort", 3, "min_cohort", 3),
    ],
)
def test_every_option_of_a_task_is_in_the_task(
    option: str, value: object, member: str, expected: object, place: Place
) -> None:
    out = place.new()
    assert json_of("task create", "--out", out, *TASK, option, value)[member] == expected
    assert json_of("task show", out / "server1" / "task.json")[member] == expected


@pytest.mark.parametrize(
    ("words", "rounds", "decay"),
    [
        ((), 100, "rows 0, biases 0"),
        (("--people", 10), 100, "rows 2, biases 0.7"),
        (("--people", 1001), 1252, "rows 0.01998001998, biases 0.006993006993"),  # 5,005 sessions, four in a round
        (("--people", 1001, "--rounds", 7, "--row-decay", 0), 7, "rows 0, biases 0.006993006993"),
        (("--people", 1001, "--loss", "bpr"), 1252, "rows 0.03996003996, biases 0"),
    ],
)
def test_rounds_and_decays_follow_from_the_fleet(words: Words, rounds: int, decay: str, place: Place) -> None:
    made = json_of("task create", "--out", place.new(), *TASK, *words)
    assert (made["rounds"], made["decay"]) == (rounds, decay)


def test_a_task_that_loses_more_items_needs_fewer_slots(place: Place) -> None:
    careful, careless = (
        json_of("task create", "--out", place.new(), *TASK, "--items", 400, "--placement-loss", loss)
        for loss in ("1e-9", "0.1")
    )
    assert careful["loss_bound"] <= 1e-9 < careless["loss_bound"] <= 0.1
    assert careful["slots"] > careless["slots"]


def test_a_task_of_server_1_is_relayed(place: Place) -> None:
    made = json_of("task create", "--out", place.new(), *TASK, "--server1", place.resting / "server1.pair.json")
    assert made["transport"].startswith("relayed")
    assert len(made["relay_key"]) == 64
    assert made["identity0"].startswith("none")


def test_a_task_that_can_have_a_successor_names_both_servers(place: Place) -> None:
    zero = ("--server0", place.server(0))
    made = json_of("task create", "--out", place.new(), *TASK, "--server1", place.resting / "server1.pair.json", *zero)
    assert len(made["identity0"]) == len(made["relay_key"]) == 64
    assert "--server1" in refused("task", "create", "--out", place.new(), *TASK, *zero)


PLAN: Words = ("--items", 2000, "--capacity", 50, "--seconds", 0.05)


@pytest.mark.parametrize(
    ("words", "member", "factor"),
    [
        (("--width", 130), "bytes_down_whole_table", 2),
        (("--cohort", 200), "rounds_until_everybody_took_part", 0.5),
        (("--cohort", 200), "stored_bytes_per_round", 2),
        (("--fleet", 20_000), "rounds_until_everybody_took_part", 2),
    ],
)
def test_a_plan_follows_its_options(words: Words, member: str, factor: float) -> None:
    assert json_of("plan", *PLAN, *words)[member] == factor * json_of("plan", *PLAN)[member]


def test_a_plan_counts_the_dense_part_the_ring_and_the_loss() -> None:
    base = json_of("plan", *PLAN)
    dense = json_of("plan", *PLAN, "--dense-size", 1000)
    assert dense["bytes_down_per_device"] - base["bytes_down_per_device"] == 4000
    assert json_of("plan", *PLAN, "--ring-bits", 64)["bytes_up_per_device"] > base["bytes_up_per_device"]
    assert json_of("plan", *PLAN, "--placement-loss", 0.1)["slots"] < base["slots"]


def test_addresses_of_a_server_are_in_its_settings(place: Place) -> None:
    folder = place.new()
    at = ("--bind", "10.0.0.1", "--port", 9001, "--peer-bind", "10.0.0.2", "--peer-port", 9002)
    run("init", "--role", 1, "--dir", folder, "--host", "one.example", *at)
    settings = tomllib.loads((folder / "secemb.toml").read_text())
    assert (settings["devices"]["host"], settings["devices"]["port"]) == ("10.0.0.1", 9001)
    assert (settings["peer"]["host"], settings["peer"]["port"]) == ("10.0.0.2", 9002)


def test_a_relay_key_begins_and_ends_when_asked(place: Place) -> None:
    server = place.server_with_a_relay_key()
    first = json_of("relay-key list", "--config", server)[0]
    words = ("--lead", 600, "--overlap", 60, "--days", 2)
    made = json_of("relay-key rotate", "--config", server, *words)
    begin, end = (datetime.fromisoformat(made[name]) for name in ("not_before", "not_after"))
    assert made["state"] == "pending"
    assert timedelta(days=2) <= end - begin <= timedelta(days=2, hours=1)
    assert begin - datetime.fromisoformat(first["not_before"]) >= timedelta(seconds=599)
    held = {row["key_id"]: row for row in json_of("relay-key list", "--config", server)}
    assert held.keys() == {first["key_id"], made["key_id"]}
    assert held[first["key_id"]]["not_after"] < first["not_after"]


@pytest.mark.parametrize("how", ["random", "per-user", "leave-last-out"])
def test_a_split_follows_its_seed_and_its_share(how: str, place: Place) -> None:
    def split(*words: object) -> tuple[int, str]:
        out = place.new()
        found = json_of("data split", place.ratings, "--out", out, "--how", how, *words)
        return found["test"], (out / "test.csv").read_text()

    assert split("--seed", 1) == split("--seed", 1)
    if how == "leave-last-out":  # nothing is drawn
        assert split("--seed", 1) == split("--seed", 2)
        assert split()[0] == 8
    else:
        assert split("--seed", 1) != split("--seed", 2)
        assert split("--test-share", 0.5)[0] > 2 * split("--test-share", 0.1)[0]


def test_settings_are_checked_by_file_as_well_as_by_directory(place: Place) -> None:
    server = place.server(0)
    assert json_of("check", "--config", server / "secemb.toml", "--offline")["ok"]
    assert json_of("check", server, "--offline")["ok"]
    found = json_of("check", server, code=1)
    assert any("start it, or check url in [peer]" in one["fix"] for one in found["checks"])


def test_origins_are_shown_when_asked_and_in_json_always(place: Place) -> None:
    words = ("config", "show", "--config", place.resting / "server0")
    assert "default" not in run(*words)
    assert "default" in run(*words, "--origin")
    assert "…" not in run(*words, "--origin"), "what is long is folded, not cut off"


def test_noise_is_projected_for_a_rate_and_a_delta() -> None:
    words: Words = ("--rounds", 50, "--multiplier", 2)
    base, sampled, strict = (
        json_of("privacy project", *words, *more)["epsilon"]
        for more in ((), ("--sampling-rate", 0.01), ("--delta", 1e-9))
    )
    assert sampled < base < strict


def test_a_model_is_exported_in_the_version_and_the_parts_that_were_asked_for(place: Place, tmp_path: Path) -> None:
    folder = place.pair.servers[0].folder
    try:
        found = json_of("model export", tmp_path / "a", "--version", 0, "--split-bias", "--config", folder)
        assert found["version"] == 0
        assert load_file(tmp_path / "a").keys() >= {"embedding", "bias"}
        assert "secemb model list" in refused("model", "export", tmp_path / "b", "--version", 7, "--config", folder)
        rated = {3, 17, 90}
        shown, all_of_it = (
            {row["item"] for row in json_of("device recommend", place.device, "--k", 200, *more)}
            for more in ((), ("--include-rated",))
        )
        assert (len(shown), len(all_of_it)) == (197, 200)
        assert all_of_it - shown == rated
    finally:
        place.close()
