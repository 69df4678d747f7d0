"""Commands as people type them, in this process: what they print, and how they end."""

import json
import re
from collections.abc import Iterator
from types import UnionType
from typing import Any

import typer
from typer.testing import CliRunner

from secemb_tools.cli.main import app
from secemb_tools.shapes import SHAPES, Lines, Many, Named, OneOf, Shape


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the commands that do something, with their names; hidden ones are for those who work on this."""
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, one in command.commands.items():
        if not one.hidden:
            yield from leaves(one, (*path, name))


COMMANDS: dict[str, Any] = dict(leaves(typer.main.get_command(app)))


def run(*words: object, code: int = 0, typed: str | None = None) -> str:
    """Run a command, check how it ends, and return what it printed to stdout."""
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, input=typed)
    assert done.exit_code == code, done.output
    return str(done.stdout)


def refused(*words: object, code: int = 1) -> str:
    """Run a command that must fail, and return what it says on one line."""
    done = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert done.exit_code == code, done.output
    assert not done.stdout.strip(), "what goes wrong is said on stderr"
    return re.sub(r"[\s│]+", " ", done.output)


def json_of(name: str, *words: object, code: int = 0) -> Any:
    """Run a command with --json, and check that it has the documented shape."""
    found = read_json(run(*name.split(), *words, "--json", code=code))
    check_shape(name, found)
    return found


def read_json(text: str) -> Any:
    """Return what a program that knows JSON reads; NaN and Infinity are none."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def check_shape(name: str, found: Any) -> None:
    """Fail unless this is what the reference says of the command, to the last member."""
    shape = SHAPES[name]
    faults = list(faults_of(shape.of if isinstance(shape, Lines) else shape, found))
    assert not faults, (name, faults)


def faults_of(shape: Shape, found: Any, at: str = "it") -> Iterator[str]:
    """Yield where something is not of a shape; a list without elements is one, unless the shape says otherwise."""
    match shape:
        case dict():
            yield from _faults_of_members(shape, found, at)
        case OneOf():
            if all(any(faults_of(one, found, at)) for one in (shape.first, shape.second)):
                yield from faults_of(shape.first, found, at)
        case Many() | Named():
            yield from _faults_of_several(shape, found, at)
        case _:
            if not _is_one(shape, found):
                yield f"{at} is {type(found).__name__}, not {shape}"


def _faults_of_members(shape: dict[str, Shape], found: Any, at: str) -> Iterator[str]:
    if not isinstance(found, dict):
        yield f"{at} is no object"
        return
    names = {name.removesuffix("?"): (name.endswith("?"), one) for name, one in shape.items()}
    yield from (f"{at} has {name}, which is not documented" for name in found.keys() - names.keys())
    for name, (optional, one) in names.items():
        if name in found:
            yield from faults_of(one, found[name], f"{at}.{name}")
        elif not optional:
            yield f"{at} has no {name}"


def _faults_of_several(shape: Many | Named, found: Any, at: str) -> Iterator[str]:
    if not isinstance(found, list if isinstance(shape, Many) else dict):
        yield f"{at} is {type(found).__name__}"
        return
    if not found and not shape.may_be_empty:
        yield f"{at} is empty"
    for name, value in found.items() if isinstance(found, dict) else enumerate(found):
        yield from faults_of(shape.of, value, f"{at}[{name}]")


def _is_one(shape: Any, found: Any) -> bool:
    kinds = shape.__args__ if isinstance(shape, UnionType) else (shape,)
    whole = {type(None) if kind is None else kind for kind in kinds}
    return type(found) in whole or (type(found) is int and float in whole)
