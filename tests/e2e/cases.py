"""For each command how it succeeds and how it is refused."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tests.e2e.commands import run
from tests.e2e.place import SMALL_RUN, TASK, Place, Words

Fill = Callable[[Place], Words]
SUCCESS, BAD, JSON = "success", "bad input", "json"


@dataclass(frozen=True, kw_only=True)
class Case:
    """One command."""

    good: Fill | None = None  # what is typed behind its name
    says: str = ""  # part of what it then prints for people
    bad: Fill | None = None
    fix: str = ""  # part of what it says to that
    code: int = 1
    slow: bool = False  # it takes seconds: one run is both the success and the JSON


def nowhere(place: Place) -> Words:
    return "--config", place.new()


def weights(place: Place) -> Words:
    file = place.new(".safetensors")
    save_file({"rows": np.ones((400, 3), np.float32), "dense": np.zeros(2, np.float32)}, file)
    return file, "--config", place.server(1)


def backed_up(place: Place) -> Path:
    file = place.new(".tar")
    run("backup", file, "--config", place.pair.servers[1].folder)
    return file


def without_data(place: Place) -> Path:
    """Return what an operator has left of server 1: what is kept separately."""
    return Path(shutil.copytree(place.pair.servers[1].folder, place.new(), ignore=shutil.ignore_patterns("data")))


def films(place: Place) -> Path:
    """Return a list of two films."""
    return place.file("id,title\na,First\nb,Second\n", ".csv")


def exported(place: Place) -> Words:
    file = place.new(".jsonl")
    run("ledger", "export", file, "--config", place.pair.servers[1].folder)
    return file, "--config", place.server(1)


def server_without(name: str, place: Place) -> Path:
    """Return a server 0 that has suspended this device."""
    home = place.server(0)
    assert "suspended" in run("token", "suspend", name, "--config", home)
    return home


CASES: dict[str, Case] = {
    "bench": Case(bad=lambda _: ("--catalogue", "ML2M"), fix="choose one of ML100K, ML1M", code=2),
    "backup": Case(
        good=lambda place: (place.new(".tar"), "--config", place.pair.servers[1].folder),
        says="model version",
        bad=lambda place: (place.file("mine"), "--config", place.pair.servers[1].folder),
        fix="choose another file",
    ),
    "catalogue add": Case(
        good=lambda place: (films(place), place.file("id,title\nc,Third\n", ".csv")),
        says="added",
        bad=lambda place: (films(place), place.file("id,title\nc,Third\nc,Again\n", ".csv")),
        fix="lists the id 'c' more than once",
    ),
    "catalogue diff": Case(
        good=lambda place: (films(place), place.file("id,title\nb,Second\nc,Third\n", ".csv")),
        says="retired",
        bad=lambda place: (films(place), place.new()),
        fix="cannot be read",
    ),
    "catalogue retire": Case(
        good=lambda place: (films(place), "a"),
        says="retired",
        bad=lambda place: (films(place), "x"),
        fix="no item has the id 'x'",
    ),
    "catalogue show": Case(
        good=lambda place: (films(place),),
        says="title",
        bad=lambda place: (place.file("row,id,title\n0,a,\n1,a,\n", ".csv"),),
        fix="the id 'a' is listed twice",
    ),
    "check": Case(good=lambda place: (place.server(1),), says="kernel"),
    "config show": Case(
        good=lambda place: ("--config", place.resting / "server0"), says="data_dir", bad=nowhere, fix="secemb init"
    ),
    "data fetch": Case(
        good=lambda place: ("ml-100k", "--path", place.films),
        says="people",
        bad=lambda _: ("ml-2m",),
        fix="ml-1m",
    ),
    "data show": Case(
        good=lambda place: (place.ratings,), says="density", bad=lambda p: (p.new(),), fix="secemb data fetch"
    ),
    "data split": Case(
        good=lambda place: (place.ratings, "--out", place.new()),
        says="train",
        bad=lambda place: (place.ratings, "--out", place.films),
        fix="not be overwritten",
    ),
    "demo": Case(bad=lambda _: ("--devices", 6, "--cohort", 7), fix="at most the number of devices"),
    "dev": Case(bad=lambda _: ("--model", "svd"), fix="choose one of mf, ncf, fm, deepfm"),
    "device join": Case(
        good=lambda place: (place.new(), *place.task, "--ratings", place.own_ratings()),
        says="bytes per round",
        bad=lambda place: (place.device, *place.task),
        fix="secemb device once",
    ),
    "device loop": Case(bad=lambda place: (place.new(),), fix="secemb device join"),
    "device once": Case(bad=lambda place: (place.new(),), fix="secemb device join"),
    "device recommend": Case(
        good=lambda place: (place.device, "-k", 3),
        says="score",
        bad=lambda place: (place.new(),),
        fix="secemb device join",
    ),
    "drain": Case(
        good=lambda place: (*place.both[:4], "--end"),
        says="taking part",
        bad=lambda place: place.both[:4],
        fix="give --reason",
        code=2,
    ),
    "init": Case(
        good=lambda place: ("--role", 0, "--dir", place.new(), "--host", "zero.example"),
        says="operator token",
        bad=lambda place: ("--role", 0, "--dir", place.resting, "--host", "zero.example"),
        fix="choose another directory or empty it",
    ),
    "kernel": Case(
        good=lambda _: (), says="kernel: ", bad=lambda _: ("more",), fix="unexpected extra argument", code=2
    ),
    "ledger export": Case(
        good=lambda place: (place.new(".jsonl"), "--config", place.pair.servers[1].folder),
        says="rows",
        bad=lambda place: (place.file("mine"), "--config", place.pair.servers[1].folder),
        fix="choose another file",
    ),
    "ledger import": Case(
        good=exported,
        says="rows",
        bad=lambda place: (place.file("{}"), "--config", place.server(1)),
        fix="secemb ledger export",
    ),
    "ledger upgrade": Case(
        good=lambda place: ("--config", place.server(0)), says="schema is up to date", bad=nowhere, fix="secemb init"
    ),
    "loadtest": Case(bad=lambda _: ("--catalogue", "ML2M"), fix="choose one of ML100K, ML1M", code=2),
    "memory": Case(bad=lambda _: ("--items", "many"), fix="separated by commas", code=2),
    "attack": Case(bad=lambda _: ("--attack", "none such"), fix="choose one of none, ring extremes", code=2),
    "scale": Case(bad=lambda _: ("--sections", "none"), fix="choose one of engines", code=2),
    "pacing": Case(bad=lambda _: ("--devices", "7"), fix="choose one of 1000, 100000", code=2),
    "paper": Case(
        good=lambda place: ("--quick", "--tables", "breakpoint", "--folder", place.new()),
        says="1 table in",
        bad=lambda place: ("--tables", "none", "--folder", place.new()),
        fix="there are upload, download",
        code=2,
    ),
    "model export": Case(
        good=lambda place: (place.new(".safetensors"), "--config", place.pair.servers[1].folder),
        says="digest",
        bad=lambda place: (place.file("mine"), "--config", place.pair.servers[1].folder),
        fix="choose another file",
    ),
    "model fetch": Case(
        good=lambda place: ("--config", place.pair.servers[0].folder),
        says="fetched",
        bad=lambda place: ("--config", place.pair.servers[1].folder),
        fix="--from",
    ),
    "model import": Case(
        good=weights,
        says="digest",
        bad=lambda place: (place.file("no weights"), "--config", place.server(1)),
        fix="safetensors",
    ),
    "model list": Case(
        good=lambda place: ("--config", place.pair.servers[0].folder), says="published", bad=nowhere, fix="secemb init"
    ),
    "model reset-optimiser": Case(bad=lambda place: ("--config", place.pair.servers[0].folder), fix="nothing to reset"),
    "model rollback": Case(bad=lambda place: (99, *place.both[:4], "--yes"), fix="refuses"),
    "model show": Case(
        good=lambda place: ("--config", place.pair.servers[0].folder),
        says="mean row norm",
        bad=lambda place: (99, "--config", place.pair.servers[0].folder),
        fix="secemb model list",
    ),
    "pair export": Case(
        good=lambda place: (place.resting / "server0",),
        says='"certificate"',
        bad=lambda place: (place.new(),),
        fix="secemb init",
    ),
    "pair import": Case(
        good=lambda place: (place.server(0), place.resting / "server1.pair.json"),
        says="relay key",
        bad=lambda place: (place.server(0), place.file("{}")),
        fix="secemb pair export",
    ),
    "pair rotate": Case(
        good=lambda place: (place.server(0), "--host", "zero.example"),
        says="certificate",
        bad=lambda place: (place.new(), "--host", "zero.example"),
        fix="secemb init",
    ),
    "pair switch": Case(
        good=lambda place: (place.server_with_next_keys(), "--now"),
        says="in use",
        bad=lambda place: (place.server(0),),
        fix="secemb pair rotate",
    ),
    "plan": Case(
        good=lambda _: ("--catalogue", "ML100K", "--seconds", 0.05, "--cluster", 100_000),
        says="loss bound",
        bad=lambda _: (),
        fix="--items and --capacity, or --catalogue",
    ),
    "privacy project": Case(
        good=lambda _: ("--rounds", 10, "--multiplier", 4, "--budget", 8),
        says="rounds within budget",
        bad=lambda _: ("--rounds", 10),
        fix="give --multiplier, --budget",
    ),
    "privacy show": Case(
        good=lambda place: place.both[:4],
        says="adds no noise",
        bad=lambda place: ("--server", "zero", "--token-file", place.file("token")),
        fix="http://host:port",
    ),
    "quality": Case(bad=lambda place: ("--data", place.new()), fix="secemb data fetch", code=2),
    "sequences": Case(bad=lambda place: ("--data", place.new(), "--cases", "none"), fix="choose from", code=2),
    "relay-key list": Case(
        good=lambda place: ("--config", place.server_with_a_relay_key()),
        says="active",
        bad=lambda place: ("--config", place.resting / "server0"),
        fix="only server 1",
    ),
    "relay-key rotate": Case(
        good=lambda place: ("--config", place.server(1)),
        says="not after",
        bad=lambda place: ("--config", place.resting / "server0"),
        fix="only server 1",
    ),
    "report dp": Case(
        good=lambda p: (
            *("--path", p.films, "--quick", "--cohorts", 10, "--rounds", 2, "--device-by-device"),
            *("--out", p.new(".json")),
        ),
        says="figures written to",
        bad=lambda place: ("--path", place.films, "--models", "svd"),
        fix="choose from mf, ncf, fm, deepfm",
        code=2,
        slow=True,
    ),
    "restore": Case(
        good=lambda place: (backed_up(place), "--config", without_data(place)),
        says="secemb check",
        bad=lambda place: (backed_up(place), "--config", place.pair.servers[1].folder),
        fix="empty",
    ),
    "round abort": Case(bad=lambda place: (*place.both[:4], "--reason", "x" * 501), fix="refuses"),
    "round close": Case(bad=lambda place: (*place.both[:4], "--reason", "too slow"), fix="wait for 2 more"),
    "run compare": Case(
        good=lambda place: ("one", "two", "--runs", place.runs),
        says="Identical, bit for bit.",
        bad=lambda place: ("one", "three", "--runs", place.runs),
        fix="secemb run list",
    ),
    "run continue": Case(
        good=lambda place: ("one", "--runs", place.own_runs(), "--rounds", "+2"),
        says="6 of 6",
        bad=lambda place: ("one", "--runs", place.runs, "--rounds", "4"),
        fix="ask for more, such as --rounds +60",
    ),
    "run export": Case(
        good=lambda place: ("one", "--runs", place.runs, "--out", place.new(".safetensors")),
        says="digest",
        bad=lambda place: ("one", "--runs", place.runs, "--out", place.ratings),
        fix="choose another file",
    ),
    "run recommend": Case(
        good=lambda place: ("one", "--runs", place.runs, "--user", 3, "-k", 2),
        says="score",
        bad=lambda place: ("one", "--runs", place.runs),
        fix="give either",
    ),
    "run list": Case(good=lambda place: ("--runs", place.runs), says="two"),
    "run show": Case(
        good=lambda place: ("one", "--runs", place.runs),
        says="4 of 4",
        bad=lambda place: ("three", "--runs", place.runs),
        fix="secemb run list",
    ),
    "serve": Case(bad=nowhere, fix="secemb init"),
    "simulate": Case(
        good=lambda place: (*SMALL_RUN, "--runs", place.new()),
        says="saved in",
        bad=lambda _: ("--model", "svd"),
        fix="choose one of mf, ncf, fm, deepfm",
    ),
    "status": Case(
        good=lambda place: place.both,
        says="the models match",
        bad=lambda place: ("--server", "zero", "--token-file", place.file("token")),
        fix="http://host:port",
    ),
    "task archive": Case(
        good=lambda place: (place.stopped_task(), *place.with_tasks, "--reason", "its app is gone", "--yes"),
        says="archived",
        bad=lambda place: ("commands", *place.both[:4], "--reason", "its app is gone", "--yes"),
        fix="stop it first",
    ),
    "task list": Case(
        good=lambda place: place.both[:4],
        says="commands",
        bad=lambda place: ("--server", "zero", "--token-file", place.file("token")),
        fix="http://host:port",
    ),
    "task start": Case(
        good=lambda place: ("commands", *place.both[:4], "--reason", "its app is back"),  # it runs already
        says="running",
        bad=lambda place: (place.new(".json"), *place.both[:4], "--reason", "another app"),
        fix="does not exist",
    ),
    "task succeed": Case(
        bad=lambda place: (*place.both[:4], "--cohort", 3, "--reason", "more people"),
        fix="create the next one with --server0 and --server1",
    ),
    "task stop": Case(
        good=lambda place: (place.second_task(), *place.with_tasks, "--reason", "its app is gone"),
        says="stopped",
        bad=lambda place: ("another", *place.both[:4], "--reason", "its app is gone"),
        fix="it knows",
    ),
    "task create": Case(
        good=lambda place: ("--out", place.new(), *TASK),
        says="overflow budget",
        bad=lambda place: ("--out", place.new(), *TASK, "--capacity", 61),
        fix="--capacity must be at most --items",
    ),
    "task pause": Case(
        good=lambda place: (*place.both[4:], "--reason", "new disks"),
        says="new disks",
        bad=lambda place: place.both[:4],
        fix="--reason",
        code=2,
    ),
    "task resume": Case(
        good=lambda place: place.both[4:],
        says="taking part",
        bad=lambda place: ("--server", "zero", "--token-file", place.file("token")),
        fix="http://host:port",
    ),
    "task show": Case(
        good=lambda place: (place.resting / "task" / "server0" / "task.json",),
        says="overflow budget",
        bad=lambda place: (place.new(),),
        fix="No such file",
    ),
    "operator actions": Case(
        good=lambda place: ("--config", place.server_with_an_operator("carol")),
        says="operator add",
        bad=lambda place: ("--config", place.new()),
        fix="does not exist",
    ),
    "operator add": Case(
        good=lambda place: ("carol", "--role", "admin", "--days", 3, "--config", place.server(0)),
        says="carol",
        bad=lambda place: ("first", "--config", place.server(0)),
        fix="choose another name",
    ),
    "operator list": Case(
        good=lambda place: ("--config", place.resting / "server1"),
        says="admin",
        bad=lambda place: ("--config", place.new()),
        fix="does not exist",
    ),
    "operator revoke": Case(
        good=lambda place: ("first", "--config", place.server(1)),
        says="revoked",
        bad=lambda place: ("nobody", "--config", place.server(0)),
        fix="no operator token is named nobody",
    ),
    "token create": Case(
        good=lambda place: ("phone-8", "phone-9", "--config", place.server(0)),
        says="phone-9",
        bad=lambda place: ("phone-0", "--config", place.resting / "server0"),
        fix="a token exists for phone-0",
    ),
    "token import": Case(
        good=lambda place: (place.file(f"name,sha256\nphone-9,{'ab' * 32}\n"), "--config", place.server(0)),
        says="unchanged",
        bad=lambda place: (place.file("name,sha256\nphone-9,secret\n"), "--config", place.server(0)),
        fix="line 2: sha256 must have 64 hexadecimal digits",
    ),
    "token list": Case(
        good=lambda place: ("--config", place.resting / "server0"),
        says="phone-0",
        bad=lambda place: ("--config", place.resting / "server1"),
        fix="only server 0",
    ),
    "token replace": Case(
        good=lambda place: ("phone-0", "--overlap", 0, "--days", 9, "--config", place.server(0)),
        says="token",
        bad=lambda place: ("nobody", "--config", place.server(0)),
        fix="no device has this name",
    ),
    "token resume": Case(
        good=lambda place: ("phone-0", "--config", server_without("phone-0", place)),
        says="active",
        bad=lambda place: ("phone-9", "--config", place.server(0)),
        fix="no token matches this name",
    ),
    "token revoke": Case(
        good=lambda place: ("phone-0", "--config", place.server(0)),
        says="revoked",
        bad=lambda place: ("phone-9", "--config", place.server(0)),
        fix="no token matches this name",
    ),
    "token suspend": Case(
        good=lambda place: ("phone-0", "--reason", "too many forged uploads", "--config", place.server(0)),
        says="suspended",
        bad=lambda place: ("phone-9", "--config", place.server(0)),
        fix="no token matches this name",
    ),
    "vectors": Case(
        good=lambda place: ("--directory", place.new()),
        says="vector files",
        bad=lambda place: ("--directory", place.file("mine")),
        fix="File exists",
    ),
    "wire": Case(bad=lambda _: ("--catalogue", "ML2M"), fix="choose one of ML100K, ML1M", code=2),
}
