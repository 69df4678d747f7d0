"""Commands as people type them, in this process: what they print, and how they end."""

import json
import re
from collections.abc import Iterator
from typing import Any

import typer
from pydantic import TypeAdapter, ValidationError
from typer.testing import CliRunner, Result

from secemb_lab import results as lab_results
from secemb_lab.__main__ import app as lab
from secemb_tools.cli import results
from secemb_tools.cli.main import app


def leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the commands that do something, with their names."""
    if not hasattr(command, "commands"):
        yield " ".join(path), command
        return
    for name, one in command.commands.items():
        if not one.hidden:
            yield from leaves(one, (*path, name))


LAB_COMMANDS: dict[str, Any] = dict(leaves(typer.main.get_command(lab)))  # of `python -m secemb_lab`
COMMANDS: dict[str, Any] = dict(leaves(typer.main.get_command(app))) | LAB_COMMANDS
RESULTS = results.RESULTS | lab_results.RESULTS


def invoke(*words: object, typed: str | None = None) -> Result:
    """Run a command of `secemb` or of the laboratory, whichever has it."""
    chosen = lab if str(words[0]) in {name.split()[0] for name in LAB_COMMANDS} else app
    return CliRunner().invoke(chosen, [str(word) for word in words], catch_exceptions=False, input=typed)


def run(*words: object, code: int = 0, typed: str | None = None) -> str:
    """Run a command, check how it ends, and return what it printed to stdout."""
    done = invoke(*words, typed=typed)
    assert done.exit_code == code, done.output
    return str(done.stdout)


def refused(*words: object, code: int = 1) -> str:
    """Run a command that must fail, and return what it says on one line."""
    done = invoke(*words)
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
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


_OF_EVALUATIONS = ("figures", "sums", "window")  # empty in rows of rounds that train
# Where a list or an object of names may be empty; elsewhere that would leave the form of its elements untested.
_MAY_BE_EMPTY = {
    *("status.away", "status.checks", "status.refusals", "run compare.differences", "privacy show"),
    *("device loop.settled", "device once.settled"),  # in a device's first call
    *("demo.figures", "demo.sums", "demo.window"),  # of rounds that train
    *(
        "plan.cannot",
        "kernel.instruction_sets",
        "bench.threads",
        "pacing.reasons",
        "paper.plots",
        "attack.seen",
        "attack.rank",
        "wire.reads",
        "data fetch.faults",
        "data show.faults",
    ),
    *(f"{name}.far_ratings" for name in ("data fetch", "data show")),
    *(f"{name}.continued" for name in ("demo", "run show", "simulate")),  # a run that was continued has some
    *(f"{name}.{part}" for name in ("demo", "run continue", "run show", "simulate") for part in _OF_EVALUATIONS),
}


def check_shape(name: str, found: Any) -> None:
    """Fail unless this is what the reference says of the command, to the last member."""
    faults = [*faults_of(RESULTS[name], found), *empty_parts(name, found)]
    assert not faults, (name, faults)


def faults_of(kind: Any, found: Any) -> list[str]:
    """Return where something is not of a type: members that are missing, unknown or of another kind."""
    try:
        TypeAdapter(kind).validate_json(json.dumps(found), strict=True, extra="forbid")
    except ValidationError as error:
        return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return []


def empty_parts(name: str, found: Any, member: str = "") -> Iterator[str]:
    """Yield the members that are empty and should not be."""
    place = f"{name}.{member}" if member else name
    if isinstance(found, list | dict) and not found and place not in _MAY_BE_EMPTY:
        yield f"{place} is empty"
    for key, one in found.items() if isinstance(found, dict) else ():
        yield from empty_parts(name, one, str(key))
    for one in found if isinstance(found, list) else ():
        yield from empty_parts(name, one, member)
