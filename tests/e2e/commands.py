"""Commands as people type them, in this process: what they print, and how they end."""

import json
import re
from typing import Any

from typer.testing import CliRunner

from secemb_tools.__main__ import app
from secemb_tools.shapes import SHAPES


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
    found = json.loads(run(*name.split(), *words, "--json", code=code))
    check_shape(name, found)
    return found


def check_shape(name: str, found: Any) -> None:
    shape = SHAPES[name]
    rows = found if shape.rows else [found]
    assert isinstance(rows, list)
    for row in rows:
        members = shape.otherwise if shape.otherwise and row.get("outcome") != "contributed" else shape.members
        assert set(row) >= set(members), name
