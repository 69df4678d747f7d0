"""`secemb privacy`."""

from typing import Annotated

import typer

from secemb_tools.operate import answer
from secemb_tools.operate.options import AsJson
from secemb_tools.operate.refusal import OperationError, refusals

app = typer.Typer(help="What rounds cost in privacy.", no_args_is_help=True)


@app.callback()
def group() -> None:
    """What rounds cost in privacy."""


@app.command()
def project(
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds there are to be.")],
    multiplier: Annotated[float | None, typer.Option(help="Noise of each server in units of the clip, σ/Δ.")] = None,
    budget: Annotated[float | None, typer.Option(help="The largest ε; without --multiplier, solve for it.")] = None,
    delta: Annotated[float, typer.Option(help="δ; well below one over the number of people.")] = 1e-6,
    rate: Annotated[
        float | None, typer.Option(help="Chance of a device to take part in a round, if no server knows who does.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Say what rounds with noise promise against each single server, or how much noise a budget needs."""
    from secemb_tools.operate.privacy import Wish, project_costs

    with refusals(), answer.busy("accounting"):
        if multiplier is None and budget is None:
            raise OperationError("give --multiplier, or --budget to solve for one, or both")
        wish = Wish(rounds=rounds, multiplier=multiplier, budget=budget, delta=delta, rate=rate)
        answer.show_facts(project_costs(wish), as_json=json)
