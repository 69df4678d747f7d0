"""`secemb privacy`: the cost of rounds with noise, and the budget spent."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, AuthorityFile, TaskName, refusals
from secemb_tools.errors import OperationError

app = typer.Typer(help="Show the privacy budget: what rounds cost and what is left.", no_args_is_help=True)

_COLUMNS = (
    *("kind", "shares", "epsilon", "epsilon_known", "delta", "budget"),
    *("projected", "projected_known", "remaining", "exhausted"),
)


@app.command()
def show(
    server: Annotated[str, typer.Option(help="Address of a server's operator API.")] = "http://127.0.0.1:8442",
    token_file: Annotated[
        Path | None, typer.Option(help="File with an operator token; default: the variable OPERATOR_TOKEN.")
    ] = None,
    ca: AuthorityFile = None,
    task: TaskName = None,
    json: AsJson = False,
) -> None:
    """Show how much of its privacy budget a server's task has spent, and what is left.

    With a sampling rate, epsilon and budget hold against anyone who does not know which devices took part;
    epsilon_known also holds against server 0, which knows this if devices use enrolment tokens.
    """
    from secemb_tools.cli.control import operator_client

    with operator_client(server, token_file, ca, task) as client:
        found = client.get("privacy")
        if not found and not json:
            output.note(
                "this task adds no noise, so its sums are exact; to add noise, create a task with secemb task "
                "create --privacy"
            )
            return
        output.show_rows(_COLUMNS, found, as_json=json)


@app.command()
def project(
    rounds: Annotated[int, typer.Option(min=1, help="Number of rounds.")],
    multiplier: Annotated[float | None, typer.Option(help="Each server's noise in units of the clip, σ/Δ.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Largest ε; without --multiplier, the noise is computed from it.")
    ] = None,
    delta: Annotated[float, typer.Option(help="δ; it should be well below 1 / number of people.")] = 1e-6,
    sampling_rate: Annotated[
        float | None,
        typer.Option(help="Probability that a device takes part in a round, if no server knows which do."),
    ] = None,
    json: AsJson = False,
) -> None:
    """Compute the privacy that rounds with noise give against either server alone, or the noise that a budget needs.

    With a sampling rate, epsilon holds against anyone who does not know which devices took part; epsilon_known
    also holds against server 0, which knows this if devices use enrolment tokens.
    """
    from secemb_tools.operate.privacy import PrivacyInput, project_costs

    with refusals(), output.busy("accounting"):
        if multiplier is None and budget is None:
            raise OperationError("give --multiplier, --budget to compute it from, or both")
        given = PrivacyInput(
            rounds=rounds, multiplier=multiplier, budget=budget, delta=delta, sampling_rate=sampling_rate
        )
        output.show_facts(project_costs(given), as_json=json)
