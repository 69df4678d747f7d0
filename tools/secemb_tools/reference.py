"""The reference of all commands, made from the commands themselves."""

from collections.abc import Iterator
from pathlib import Path
from textwrap import fill
from typing import Any

from secemb_tools.shapes import SHAPES, Lines, Shape
from secemb_tools.shapes.writing import write_shape

_WIDTH = 110  # of a shape
_TOP = """\
# The `secemb` command

Made by `make docs` from the code; change it there.

Every command says what it wants with `--help`. `secemb --install-completion` installs completion for your shell.
Nothing is sent to anybody but the servers you name: there is no telemetry.

## Exit codes

| code | meaning |
| --- | --- |
| 0 | done, and all is as it must be |
| 1 | refused, or found faulty; the message names the fix |
| 2 | the command was written wrongly |
| 130 | ended by Ctrl-C, with nothing left behind; `demo --keep` and `status --watch` then end with their own result |

## JSON

With `--json` a command prints JSON to stdout and nothing else there. The shapes below are stable: members may be
added, none of these goes or changes its meaning. They are JSON with words in place of values: `text`, `integer`,
`number`, `boolean` and `null`; `…` is for more of the same, and a `?` for a member that is not always there.
"""


def write_reference(command: Any, out: Path | None) -> None:
    """Write the reference into a file, or print it."""
    text = reference_of(command)
    if out is None:
        print(text, end="")
    else:
        out.write_text(text, encoding="utf-8")


def reference_of(command: Any) -> str:
    """Return the reference of a Click command and all below it."""
    parts = [_TOP]
    for path, one in sorted(_commands(command, ()), key=lambda found: found[0]):
        parts += _section(path, one)
    return "\n".join(parts)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield the commands that do something; groups are headings of their names."""
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, one in below.items():
        if not one.hidden:
            yield from _commands(one, (*path, name))


def _section(path: tuple[str, ...], command: Any) -> Iterator[str]:
    name = " ".join(path)
    yield f"## secemb {name}\n"
    yield f"{_clean(command.help or '')}\n"
    yield f"```\nsecemb {name}{_usage(command)}\n```\n"
    rows = [_row(one) for one in command.params if one.name not in ("help", "json")]
    if rows:
        yield "| | | by default |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"
    if name in SHAPES:
        yield _shape(SHAPES[name])


def _usage(command: Any) -> str:
    words = [" [OPTIONS]"]
    words += [f" {one.name.upper()}" for one in command.params if one.param_type_name == "argument"]
    return "".join(words)


def _row(one: Any) -> str:
    if one.param_type_name == "argument":
        return f"| `{one.name.upper()}` | {_clean(one.help or '')} | {_default(one)} |"
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    return f"| {names} | {_clean(one.help or '')} | {_default(one)} |"


def _default(one: Any) -> str:
    if one.required:
        return "needed"
    if one.default is None or one.default is False or callable(one.default):
        return ""
    values = one.default if isinstance(one.default, list | tuple) else [one.default]
    return " ".join(f"`{getattr(value, 'value', value)}`" for value in values)


def _shape(shape: Shape) -> str:
    lines = ", one object a line" if isinstance(shape, Lines) else ""
    written = fill(write_shape(shape), _WIDTH, subsequent_indent=" ", break_long_words=False, break_on_hyphens=False)
    return f"With `--json`{lines}:\n\n```\n{written}\n```\n"


def _clean(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
