"""`secemb status`: the state of one server or of both."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import INTERRUPTED, REFUSED, AsJson, AuthorityFile, refusals

Servers = Annotated[list[str], typer.Option("--server", help="Address of a server's operator API; repeat it for both.")]
TokenFiles = Annotated[
    list[Path] | None,
    typer.Option("--token-file", help="File with the operator token, one for each --server; or OPERATOR_TOKEN."),
]


def status(
    server: Servers = ["http://127.0.0.1:8442"],  # noqa: B006 (Typer copies it)
    token_file: TokenFiles = None,
    ca: AuthorityFile = None,
    watch: Annotated[bool, typer.Option("--watch", help="Keep watching until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(min=0.1, help="With --watch: seconds between updates.")] = 2.0,
    times: Annotated[int | None, typer.Option(min=1, help="With --watch: end after this many updates.")] = None,
    json: AsJson = False,
) -> None:
    """Show the state of one server or both: round, model, and whether they agree; exit code 1 if something is wrong."""
    from secemb_tools.operate.operator_api import OperatorClient, tokens_for
    from secemb_tools.operate.status import is_healthy, picture, read_status, watch_status

    with refusals(), ExitStack() as opened:
        tokens = tokens_for(len(server), token_file or [])
        clients = [opened.enter_context(OperatorClient(*one, ca=ca)) for one in zip(server, tokens, strict=True)]
        if watch:
            last = watch_status(lambda: read_status(clients), _ticks(every, times), as_json=json)
            if last is None:
                raise typer.Exit(INTERRUPTED)
        else:
            last = read_status(clients)
            if json:
                output.show_json(last)
            else:
                output.show(picture(last))
    raise typer.Exit(0 if is_healthy(last) else REFUSED)


def _ticks(every: float, times: int | None) -> Iterator[int]:
    """Yield before each update, with pauses between them."""
    number = 0
    while times is None or number < times:
        if number:
            time.sleep(every)
        yield number
        number += 1
