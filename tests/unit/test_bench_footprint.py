"""What the benchmark says of an install: everything that the wheel brings, and what a device imports of it."""

from pathlib import Path

import pytest
from tests.architecture.test_imports import PACKAGES

from secemb_lab.bench import footprint


@pytest.fixture(scope="module")
def figures() -> dict[str, object]:
    return footprint.measure()


def size_of(package: Path) -> int:
    return sum(file.stat().st_size for file in package.rglob("*") if file.is_file() and file.suffix != ".pyc")


def test_all_packages_of_the_product_count_as_installed(figures: dict[str, dict[str, int]]) -> None:
    wheel = [package for package in PACKAGES if package.name != "secemb_lab"]
    assert figures["installed_bytes"]["secemb"] == sum(map(size_of, wheel))


def test_a_device_imports_two_of_them(figures: dict[str, int]) -> None:
    mine = [package for package in PACKAGES if package.name in ("secemb_sdk", "secemb_shared")]
    assert figures["device_bytes"] == sum(map(size_of, mine))
    assert not figures["imports_torch"]


def test_what_the_base_install_needs_is_counted_and_nothing_of_the_extras(figures: dict[str, dict[str, int]]) -> None:
    names = set(figures["installed_bytes"])
    assert {"numpy", "httpx", "cryptography"} <= names
    assert not {"torch", "typer", "fastapi", "pytest"} & names
    assert all(size > 0 for size in figures["installed_bytes"].values())
