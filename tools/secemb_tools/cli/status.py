"""`secemb status`."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any

import typer

from secemb_tools import output
from secemb_tools.cli.options import REFUSED, AsJson, refusals

INTERRUPTED = 130
Servers = Annotated[list[str], typer.Option("--server", help="A server's address; give it twice for both.")]
TokenFiles = Annotated[
    list[Path] | None,
    typer.Option("--token-file", help="A file with the operator's token, one for each --server; or OPERATOR_TOKEN."),
]


def status(
    server: Servers = ["http://127.0.0.1:8440"],  # noqa: B006 (Typer copies it)
    token_file: TokenFiles = None,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    times: Annotated[int | None, typer.Option(min=1, help="With --watch: end after so many looks.")] = None,
    json: AsJson = False,
) -> None:
    """Say where one server stands, or both: round, model, and whether they agree; exit code 1 if something is wrong."""
    from secemb_tools.operate.operator_api import OperatorLine, tokens_for
    from secemb_tools.operate.status import picture, standing_of, watch_standing

    with refusals(), ExitStack() as opened:
        tokens = tokens_for(len(server), token_file or [])
        lines = [opened.enter_context(OperatorLine(*one)) for one in zip(server, tokens, strict=True)]
        if not watch:
            standing = standing_of(lines)
            if json:
                output.show_json(standing)
            else:
                output.show(picture(standing))
        else:
            looks = _looks(every, times)
            seen = watch_standing(lambda: standing_of(lines), looks, as_json=json)
            if seen is None:
                raise typer.Exit(INTERRUPTED)
            standing = seen
    raise typer.Exit(0 if is_sound(standing) else REFUSED)


def is_sound(standing: dict[str, Any]) -> bool:
    """Tell whether every server is ready and two agree."""
    servers = standing["servers"]
    ready = bool(servers) and all(one["ready"] for one in servers)
    # While a version is being published one server is ahead for a moment; the same version is the same everywhere.
    same_version = len({one["model_version"] for one in servers}) == 1
    differ = standing["digests_equal"] is False and same_version
    return ready and standing["same_task"] is not False and not differ


def _looks(every: float, times: int | None) -> Iterator[int]:
    """Yield before each look, with pauses between."""
    number = 0
    while times is None or number < times:
        if number:
            time.sleep(every)
        yield number
        number += 1
