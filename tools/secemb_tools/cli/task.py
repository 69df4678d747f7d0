"""`secemb task`."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.options import AsJson, refusals

app = typer.Typer(help="What is trained: a file that both servers hold.", no_args_is_help=True)


@app.command()
def create(
    out: Annotated[Path, typer.Option(help="Gets server0/ and server1/, one for each operator.")],
    items: Annotated[int, typer.Option(min=1, help="Rows of the table.")],
    width: Annotated[int, typer.Option(min=1, help="Numbers a row, biases included.")],
    capacity: Annotated[int, typer.Option(min=1, help="Most items of a device that take part in a round (m').")],
    cohort: Annotated[int, typer.Option(min=1, help="Most sessions of a round.")],
    min_cohort: Annotated[int, typer.Option(min=1, help="Fewest sessions that a sum is opened for.")],
    clip: Annotated[float, typer.Option(help="Largest absolute number in one device's update.")],
    name: Annotated[str, typer.Option(help="For people.")] = "task",
    layout: Annotated[str, typer.Option(help="binned, or direct as in the paper.")] = "binned",
    loss: Annotated[float, typer.Option(help="Binned: how often a full device may have to leave an item out.")] = 1e-6,
    ring_bits: Annotated[int, typer.Option(help="32 or 64.")] = 32,
    fraction_bits: Annotated[int, typer.Option(min=0, help="Bits behind the point.")] = 16,
    rounds: Annotated[int, typer.Option(min=1, help="How many rounds the task has.")] = 100,
    join_seconds: Annotated[int, typer.Option(min=1, help="How long a round takes sessions in.")] = 60,
    upload_seconds: Annotated[int, typer.Option(min=1, help="How long after its opening updates may come.")] = 600,
    optimiser: Annotated[str, typer.Option(help="adam or sgd.")] = "adam",
    row_rate: Annotated[str, typer.Option(help="Learning rate of the rows.")] = "0.025",
    dense_rate: Annotated[str, typer.Option(help="Learning rate of the dense part.")] = "0.001",
    dense_size: Annotated[int, typer.Option(min=0, help="Numbers outside the table.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Of the first weights; not secret.")] = 0,
    initial_scale: Annotated[str, typer.Option(help="Standard deviation of the first weights.")] = "0.01",
    server1: Annotated[
        Path | None, typer.Option(help="Server 1's pair file: with it devices may send everything through server 0.")
    ] = None,
    privacy: Annotated[
        Path | None, typer.Option(help="A file of what the task promises (docs/privacy.md): with it there is noise.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Make a task, or say why it would not be safe."""
    from secemb_tools.operate.tasks import (
        Wishes,
        describe_task,
        make_task,
        relay_key_of,
        warning_of,
        write_task,
    )

    with refusals():
        wishes = Wishes(
            name=name,
            items=items,
            width=width,
            dense_size=dense_size,
            capacity=capacity,
            layout=layout,
            loss=loss,
            ring_bits=ring_bits,
            fraction_bits=fraction_bits,
            clip=clip,
            cohort=cohort,
            min_cohort=min_cohort,
            rounds=rounds,
            join_seconds=join_seconds,
            upload_seconds=upload_seconds,
            optimiser=optimiser,
            row_rate=row_rate,
            dense_rate=dense_rate,
            seed=seed,
            initial_scale=initial_scale,
            relay_key=relay_key_of(server1) if server1 is not None else "",
            privacy=privacy,
        )
        task = make_task(wishes)
        write_task(task, out)
        output.show_facts(describe_task(task), as_json=json)
        if warning := warning_of(task):
            output.note(warning)


@app.command()
def show(file: Annotated[Path, typer.Argument(help="A task.json.")], json: AsJson = False) -> None:
    """Say what a task is, what it costs a device and what its limits are."""
    from secemb_tools.operate.tasks import describe_task, read_task

    with refusals():
        output.show_facts(describe_task(read_task(file)), as_json=json)
