"""Every module keeps the rules of the house, and every rule does find the fault it is there for."""

import tomllib
from pathlib import Path

import pytest
from tests.architecture import rules
from tests.architecture.rules import Rule

REPOSITORY = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
ROOTS = [REPOSITORY / root for root in (*SETUPTOOLS["packages"]["find"]["where"], "lab")]
PACKAGES = [package for root in ROOTS for package in root.glob("secemb_*") if package.is_dir()]


def every_module() -> dict[str, str]:
    """Return the source text of every module of the product by its dotted name."""
    sources = {}
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            name = ".".join(path.relative_to(package.parent).with_suffix("").parts)
            sources[name.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    return sources


def is_package(module: str) -> bool:
    path = Path(*module.split("."))
    return any((root / path).is_dir() for root in ROOTS)


@pytest.mark.parametrize("rule", rules.RULES)
def test_every_module_keeps_the_rule(rule: Rule) -> None:
    assert [fault for module, source in every_module().items() for fault in rule(module, source)] == []


def test_the_laboratory_is_not_in_the_wheel() -> None:
    assert "lab" not in SETUPTOOLS["packages"]["find"]["where"]


def test_a_name_has_one_sense() -> None:
    # A package is named for its folder, and what is called like it inside is what it is about.
    modules = [module for module in every_module() if not is_package(module)]
    assert rules.names_in_several_senses(modules) == []


def test_a_name_in_two_senses_is_found() -> None:
    modules = [f"secemb_{one}.{name}" for name in rules.SENSES for one in ("sdk", "party")]
    assert rules.names_in_several_senses(modules) == []
    assert len(rules.names_in_several_senses([*modules, "secemb_sdk.transport", "secemb_party.transport"])) == 1


@pytest.mark.parametrize("package", ["secemb_shared", "secemb_sdk"])
def test_a_class_of_a_package_has_one_sense(package: str) -> None:
    sources = {module: source for module, source in every_module().items() if module.startswith(package)}
    assert rules.classes_in_several_senses(sources) == []


@pytest.mark.parametrize("server", ["secemb_server0", "secemb_server1"])
def test_a_class_of_a_server_has_one_sense(server: str) -> None:
    sources = {
        module: source
        for module, source in every_module().items()
        if module.startswith(("secemb_shared", "secemb_party", server))
    }
    assert rules.classes_in_several_senses(sources) == []


def test_a_class_in_two_senses_is_found() -> None:
    sources = {"secemb_party.ui.login": "class Guard: ...", "secemb_server0.guard": "class Guard: ...\nclass _Own: ..."}
    assert len(rules.classes_in_several_senses(sources)) == 1
    assert (
        rules.classes_in_several_senses({"secemb_party.settings": "class Ledger: ...", "b": "class Ledger: ..."}) == []
    )


def test_the_rules_know_every_package() -> None:
    assert {package.name for package in PACKAGES} == set(rules.ARROWS)


def test_every_package_says_that_it_is_typed() -> None:
    assert [package.name for package in PACKAGES if not (package / "py.typed").exists()] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("secemb_shared.ring", "import secemb_sdk"),
        ("secemb_shared.ring", "from secemb_party.evaluation import Share"),
        ("secemb_sdk.device", "from secemb_party import round"),
        ("secemb_sdk.device", "def late():\n    import secemb_server0.conductor"),
        ("secemb_sdk.device", "import importlib\nimportlib.import_module('secemb_server1')"),
        ("secemb_party.round", "import secemb_sdk.round.session"),
        ("secemb_party.round", "import secemb_server0"),
        ("secemb_server0.peer", "from secemb_server1 import responder"),
        ("secemb_server1.responder", "from secemb_server0 import conductor"),
        ("secemb_server1.responder", "from secemb_sdk import client"),
        ("secemb_server1.responder", "import secemb_tools"),
        ("secemb_tools.plan", "from secemb_lab.bench import kernel"),
    ],
)
def test_an_import_against_the_arrows_is_found(module: str, source: str) -> None:
    assert len(rules.arrows_against_the_design(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("secemb_sdk.device", "from secemb_shared import ring\nimport secemb_sdk.round.session"),
        ("secemb_server0.peer", "from secemb_party import round\nimport secemb_shared"),
        ("secemb_tools.demo.demo", "import secemb_sdk, secemb_server0, secemb_server1"),
    ],
)
def test_an_import_along_the_arrows_is_allowed(module: str, source: str) -> None:
    assert rules.arrows_against_the_design(module, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import socket",
        "import asyncio.streams",
        "from http import client",
        "import httpx",
        "from fastapi import FastAPI",
        "import uvicorn",
        "from pathlib import Path",
        "import os",
        "import io",
        "from time import monotonic",
        "from datetime import datetime",
        "import logging",
        "import threading",
        "from concurrent.futures import ThreadPoolExecutor",
        "import random",
        "open('model')",
        "print(1)",
    ],
)
def test_a_touch_of_the_outside_world_is_found_in_the_shared_package_only(source: str) -> None:
    assert len(rules.touches_of_the_outside_world("secemb_shared.dpf.paths", source)) == 1
    assert rules.touches_of_the_outside_world("secemb_sdk.device", source) == []


def test_only_the_native_backend_has_worker_threads() -> None:
    source = "from concurrent.futures import ThreadPoolExecutor\nimport threading"
    assert rules.touches_of_the_outside_world("secemb_shared.dpf._native", source) == [
        "secemb_shared.dpf._native imports threading"
    ]


@pytest.mark.parametrize(
    "source",
    ["import secrets", "from secrets import token_bytes", "from numpy import random", "np.random.default_rng()"],
)
def test_randomness_that_is_not_passed_in_is_found(source: str) -> None:
    assert len(rules.randomness_from_elsewhere("secemb_shared.dpf.paths", source)) == 1


def test_one_module_draws_from_secrets_and_from_nothing_else() -> None:
    assert rules.randomness_from_elsewhere("secemb_shared.randomness", "import secrets") == []
    assert len(rules.randomness_from_elsewhere("secemb_shared.randomness", "np.random.bytes(16)")) == 1


def test_typer_is_found_outside_the_command_line() -> None:
    assert len(rules.typer_outside_the_command_line("secemb_tools.catalogues", "def f():\n    import typer")) == 1
    assert len(rules.typer_outside_the_command_line("secemb_lab.report.dp", "from typer import Exit")) == 1
    assert rules.typer_outside_the_command_line("secemb_tools.cli.task", "import typer") == []


def test_torch_is_found_outside_the_models() -> None:
    assert len(rules.torch_outside_the_models("secemb_sdk.device", "if flag:\n    from torch import nn")) == 1
    assert len(rules.torch_outside_the_models("secemb_sdk.models_zoo", "import torch")) == 1
    assert len(rules.torch_outside_the_models("secemb_lab.report.quality", "import torch")) == 1
    assert rules.torch_outside_the_models("secemb_sdk.models.mf", "import torch.nn") == []


@pytest.mark.parametrize("source", ["from secemb_party.http.health import Check", "from fastapi import Request"])
@pytest.mark.parametrize("module", ["secemb_party.service", "secemb_server0.relay", "secemb_server1.responder"])
def test_a_core_that_knows_of_http_is_found(module: str, source: str) -> None:
    assert len(rules.cores_that_know_of_http(module, source)) == 1


@pytest.mark.parametrize(
    "module", ["secemb_party.http.health", "secemb_party.ui.pages", "secemb_server0.relay_routes", "secemb_server1.app"]
)
def test_routes_pages_and_apps_may_know_of_http(module: str) -> None:
    assert rules.cores_that_know_of_http(module, "from secemb_party.http import problems\nimport fastapi") == []


@pytest.mark.parametrize(
    "source",
    [
        "from secemb_shared.ring import Ring, encode\n__all__ = ['encode', 'Ring']",
        "__all__ = ['missing']",
        "__all__ = ['local']\ndef f():\n    local = 1",
    ],
)
def test_a_public_name_that_is_missing_or_out_of_order_is_found(source: str) -> None:
    assert len(rules.public_names_in_disorder("secemb_shared", source)) == 1


def test_public_names_may_be_bound_in_any_way() -> None:
    source = (
        "import a.b\nfrom c import d as e\nZ, y = 1, 2\nx: int = 3\n"
        "try:\n    from f import G\nexcept ImportError:\n    H = None\nclass I: ...\ndef j(): ...\n"
        "__all__ = ['G', 'H', 'I', 'Z', 'a', 'e', 'j', 'x', 'y']"
    )
    assert rules.public_names_in_disorder("secemb_shared", source) == []


@pytest.mark.parametrize("name", ["utils", "helpers", "round_manager", "_common", "misc.ring"])
def test_a_module_without_a_name_of_its_own_is_found(name: str) -> None:
    assert len(rules.names_that_name_nothing(f"secemb_party.{name}", "")) == 1


@pytest.mark.parametrize("name", ["joining", "http.driving", "demo.watching"])
def test_a_module_that_is_named_after_an_activity_is_found(name: str) -> None:
    assert len(rules.names_of_activities(f"secemb_sdk.{name}", "")) == 1
    assert rules.names_of_activities("secemb_shared.ring", "") == []


def test_a_file_that_is_too_long_is_found() -> None:
    assert rules.files_past_their_length("secemb_party.round", "x = 1\n" * 400) == []
    assert len(rules.files_past_their_length("secemb_party.round", "x = 1\n" * 401)) == 1


def test_an_error_outside_the_tree_of_its_package_is_found() -> None:
    error = "class LostError(Exception): ..."
    assert len(rules.errors_outside_their_tree("secemb_party.service", error)) == 1
    assert len(rules.errors_outside_their_tree("secemb_party.errors", error)) == 1
    assert rules.errors_outside_their_tree("secemb_party.errors", f'"""LostError  gone"""\n{error}') == []
