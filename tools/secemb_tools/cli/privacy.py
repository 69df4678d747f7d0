"""`secemb privacy`."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, refusals
from secemb_tools.errors import OperationError

app = typer.Typer(help="What rounds cost in privacy.", no_args_is_help=True)

_COLUMNS = (
    "kind",
    "shares",
    "epsilon",
    "epsilon_known",
    "delta",
    "budget",
    "projected",
    "projected_known",
    "remaining",
    "exhausted",
)


@app.callback()
def group() -> None:
    """What rounds cost in privacy."""


@app.command()
def show(
    server: Annotated[str, typer.Option(help="A server's address.")] = "http://127.0.0.1:8440",
    token_file: Annotated[Path | None, typer.Option(help="A file with its operator token; or OPERATOR_TOKEN.")] = None,
    json: AsJson = False,
) -> None:
    """Say what a server's task has spent of its privacy budget, and what is left.

    With a sampling rate, epsilon and budget hold against whoever does not know who took part; epsilon_known holds
    against server 0 too, which knows where devices show it enrolment tokens.
    """
    from secemb_tools.operate.operator_api import OperatorLine, tokens_for

    with refusals(), OperatorLine(server, tokens_for(1, [token_file] if token_file else [])[0]) as line:
        found = line.get("privacy")
        if not found and not json:
            output.note("this task adds no noise: its sums are exact; secemb task create --privacy makes one that does")
            return
        output.show_rows(_COLUMNS, found, as_json=json)


@app.command()
def project(
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds there are to be.")],
    multiplier: Annotated[float | None, typer.Option(help="Noise of each server in units of the clip, σ/Δ.")] = None,
    budget: Annotated[float | None, typer.Option(help="The largest ε; without --multiplier, solve for it.")] = None,
    delta: Annotated[float, typer.Option(help="δ; well below one over the number of people.")] = 1e-6,
    sampling_rate: Annotated[
        float | None, typer.Option(help="Chance of a device to take part in a round, if no server knows who does.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Say what rounds with noise promise against each single server, or how much noise a budget needs.

    With a sampling rate, epsilon holds against whoever does not know who took part; epsilon_known holds against
    server 0 too, which knows where devices show it enrolment tokens.
    """
    from secemb_tools.operate.privacy import PrivacyInput, project_costs

    with refusals(), output.busy("accounting"):
        if multiplier is None and budget is None:
            raise OperationError("give --multiplier, or --budget to solve for one, or both")
        given = PrivacyInput(
            rounds=rounds, multiplier=multiplier, budget=budget, delta=delta, sampling_rate=sampling_rate
        )
        output.show_facts(project_costs(given), as_json=json)
