"""`secemb device`: a device on this machine."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import INTERRUPTED, REFUSED, AsJson, AuthorityFile, refusals

app = typer.Typer(
    help="Run a device on this machine: join a task, take part in rounds, get recommendations.", no_args_is_help=True
)
Home = Annotated[Path, typer.Argument(help="The device's directory; `secemb device join` creates it.")]
RatingsFile = Annotated[
    Path | None,
    typer.Option(
        "--ratings", help="CSV file with the owner's ratings to log first; columns `item,rating` or `id,rating`."
    ),
]


@app.command()
def join(
    home: Home,
    server0: Annotated[str, typer.Option(help="Address of server 0.")],
    server1: Annotated[str, typer.Option(help="Address of server 1.")],
    task: Annotated[str, typer.Option(help="The task's id; `secemb task show` prints it.")],
    token_file: Annotated[Path | None, typer.Option(help="File with this device's enrolment token.")] = None,
    ca: AuthorityFile = None,
    ratings: RatingsFile = None,
    json: AsJson = False,
) -> None:
    """Create a device after checking that both servers serve the task. Sends nothing about its owner."""
    from secemb_tools.device import Membership, join_task, read_own_ratings

    with refusals():
        token = token_file.read_text().strip() if token_file is not None else None
        own = read_own_ratings(ratings) if ratings is not None else None
        membership = Membership(servers=(server0, server1), task=task, token=token, ca=ca and ca.absolute())
        output.show_facts(join_task(home, membership, own), as_json=json)


@app.command()
def once(home: Home, ratings: RatingsFile = None, json: AsJson = False) -> None:
    """Take part in one round. Exits with code 1 if no round accepts the device."""
    from secemb_tools.device import describe_fates, describe_outcome, has_contributed, open_device, read_own_ratings

    with refusals(), open_device(home) as device:
        if ratings is not None:
            device.log_many(read_own_ratings(ratings).by_row(device.catalogue))
        with output.busy("taking part"):
            outcome = device.contribute()
        facts = describe_outcome(outcome)
        output.show_facts(facts if json else facts | {"settled": "; ".join(describe_fates(outcome))}, as_json=json)
    raise typer.Exit(0 if has_contributed(outcome) else REFUSED)


@app.command()
def loop(
    home: Home,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Stop after this many rounds; default: run until interrupted.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Take part in rounds until Ctrl-C or --rounds, printing one line per outcome."""
    from secemb_tools.device import open_device, take_part

    try:
        with refusals(), open_device(home) as device, output.waits():
            take_part(device, rounds=rounds, as_json=json)
    except KeyboardInterrupt:
        output.note("Stopped. The next run will continue an unfinished round.")
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def recommend(
    home: Home,
    k: Annotated[int, typer.Option("--k", "-k", min=1, help="Number of items.")] = 10,
    include_rated: Annotated[bool, typer.Option("--include-rated", help="Include items already rated.")] = False,
    json: AsJson = False,
) -> None:
    """Rank the catalogue for the owner on this machine; prints ids and titles if the task has them."""
    from secemb_tools.device import open_device

    with refusals(), open_device(home) as device:
        with output.busy("fetching the public table"):
            found = device.recommend(k=k, include_rated=include_rated)
        output.show_items(found, as_json=json)
