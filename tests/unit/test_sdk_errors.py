"""The errors of the SDK are one tree in one file, and the drawing at its top is that tree."""

import ast
from pathlib import Path

import secemb_sdk
from secemb_sdk import errors
from secemb_shared.errors import SecEmbError

FOLDER = Path(secemb_sdk.__file__).parent


def drawn(text: str) -> set[tuple[str, str]]:
    """Return (parent, child) for each line of a drawing whose levels are four columns wide."""
    above: list[str] = []
    pairs = set()
    for line in text.splitlines():
        name = line.lstrip(" │├└─").split(" ")[0]
        if not name.endswith("Error"):
            continue
        level = line.index(name) // 4
        above[level:] = [name]
        if level:
            pairs.add((above[level - 1], name))
    return pairs


def defined() -> set[tuple[str, str]]:
    """Return (parent, child) for each class of the SDK's tree."""
    found, waiting = set(), [errors.DeviceError]
    while waiting:
        parent = waiting.pop()
        own = [child for child in parent.__subclasses__() if child.__module__ == errors.__name__]
        found |= {(parent.__name__, child.__name__) for child in own}
        waiting += own
    return found | {(SecEmbError.__name__, errors.DeviceError.__name__)}


def test_the_drawing_is_the_tree() -> None:
    assert errors.__doc__ is not None
    tree = errors.__doc__.split("\n\n")[1]
    assert drawn(tree) == defined()
    assert ("HomeError", "DamagedError") in drawn(tree)
    assert drawn(tree.replace("DamagedError", "OtherError")) != defined(), "this test would see it"


def test_no_error_is_defined_elsewhere() -> None:
    strays = [
        f"{path.name}: {node.name}"
        for path in FOLDER.rglob("*.py")
        if path.name != "errors.py"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef) and node.name.endswith("Error")
    ]
    assert strays == []
