"""`secemb task pause` and `resume`, `secemb round`, `secemb drain`: control of a running server by its operator."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import REFUSED, AsJson, AuthorityFile, TaskName, refusals

if TYPE_CHECKING:
    from secemb_tools.operate.control import Control
    from secemb_tools.operate.operator_api import OperatorClient

round_app = typer.Typer(help="Close the open round early, or abort it.", no_args_is_help=True)

ServerAddress = Annotated[str, typer.Option("--server", help="Address of the server's operator API.")]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file", help="File with an operator token (role admin); default: the variable OPERATOR_TOKEN."
    ),
]
Why = Annotated[str, typer.Option("--reason", help="The reason; it is recorded and shown to the other server.")]
Remark = Annotated[str | None, typer.Option("--reason", help="The reason; it is recorded.")]
Patience = Annotated[float, typer.Option("--wait", min=0, help="Seconds to wait for the outcome.")]
HERE = "http://127.0.0.1:8442"


def pause(
    reason: Why,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    task: TaskName = None,
    json: AsJson = False,
) -> None:
    """Stop new rounds from starting until `resume`. A round in progress continues to its end.

    Each operator pauses their own server, and the task is paused as long as either server is.
    """
    from secemb_tools.operate.control import steer

    with operator_client(server, token_file, ca, task) as client:
        _show(client, steer(client, "pause", reason), as_json=json)


def resume(
    reason: Remark = None,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    task: TaskName = None,
    json: AsJson = False,
) -> None:
    """End this server's pause. The next round starts immediately, unless the other server is paused."""
    from secemb_tools.operate.control import steer

    with operator_client(server, token_file, ca, task) as client:
        _show(client, steer(client, "resume", reason), as_json=json)


def drain(
    reason: Remark = None,
    end: Annotated[bool, typer.Option("--end", help="Accept sessions again.")] = False,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    wait: Patience = 60.0,
    json: AsJson = False,
) -> None:
    """Prepare a server for shutdown: it takes no new sessions, finishes its rounds and reports when it is safe to stop.

    All tasks are drained. Exits with code 1 if it is not safe to stop after --wait seconds. A restart ends a drain.
    """
    from secemb_tools.operate.control import steer, wait_until_safe

    if not end and not reason:
        raise typer.BadParameter("give --reason; it is recorded and shown to the other server", param_hint="--reason")
    with operator_client(server, token_file, ca) as first:
        tasks = list(first.each_task())
        for client in tasks:
            steer(client, "drain/end" if end else "drain", reason)
        with output.busy("waiting for the round in progress to end"):
            states = [wait_until_safe(one, one.get("control"), wait=0.0 if end else wait) for one in tasks]
        control = next((one for one in states if not one["safe_to_stop"]), states[0])
        _show(tasks[0], control, as_json=json)
    if not end and not control["safe_to_stop"]:
        raise typer.Exit(REFUSED)


@round_app.command()
def close(
    reason: Why,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    task: TaskName = None,
    wait: Patience = 60.0,
    json: AsJson = False,
) -> None:
    """Seal the open round now, at server 0. Fails if fewer sessions than the minimum cohort are complete."""
    _end("close", reason, (server, token_file, ca, task), wait, json)


@round_app.command()
def abort(
    reason: Why,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    task: TaskName = None,
    wait: Patience = 60.0,
    json: AsJson = False,
) -> None:
    """Abort the open round on both servers. Its uploads are discarded."""
    _end("abort", reason, (server, token_file, ca, task), wait, json)


_At = tuple[str, Path | None, Path | None, str | None]  # server, token file, authorities, task


def _end(how: str, reason: str, at: _At, wait: float, json: bool) -> None:
    from secemb_tools.operate.control import end_round

    with operator_client(*at) as client:
        with output.busy("waiting for the round to end"):
            found = end_round(client, how, reason, wait=wait)
        output.show_facts(found, as_json=json)


@contextmanager
def operator_client(
    server: str, token_file: Path | None, ca: Path | None, task: str | None = None
) -> "Iterator[OperatorClient]":
    """Yield a client of a server's operator API; errors end the command."""
    from secemb_tools.operate.operator_api import OperatorClient, tokens_for

    with refusals(), OperatorClient(server, tokens_for(1, [token_file] if token_file else [])[0], ca, task) as client:
        yield client


def _show(client: "OperatorClient", control: "Control", *, as_json: bool) -> None:
    from secemb_tools.operate.control import describe

    if as_json:
        output.show_json(control)
    else:
        output.show_facts(describe(control, client.get("overview")["role"]), as_json=False)
