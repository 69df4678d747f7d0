"""`secemb task` and `secemb plan`: tasks, and their estimated cost."""

from pathlib import Path
from typing import Annotated

import typer

from secemb_tools import output
from secemb_tools.cli.control import HERE, ServerAddress, TokenFile, Why, operator_client
from secemb_tools.cli.options import AsJson, AuthorityFile, Loss, Optimiser, Schedule, refusals
from secemb_tools.errors import OperationError

app = typer.Typer(
    help="Create and control the task: what is trained, in a file that both servers share.", no_args_is_help=True
)


@app.command()
def create(
    out: Annotated[Path, typer.Option(help="Where to create server0/ and server1/, one for each operator.")],
    width: Annotated[int, typer.Option(min=1, help="Numbers per row, including biases.")],
    capacity: Annotated[int, typer.Option(min=1, help="Maximum number of items per device in a round (m').")],
    cohort: Annotated[int, typer.Option(min=1, help="Maximum number of sessions in a round.")],
    min_cohort: Annotated[int, typer.Option(min=1, help="Minimum number of sessions in a sum.")],
    clip: Annotated[float, typer.Option(help="Largest absolute value in a device's update.")],
    items: Annotated[
        int | None, typer.Option(min=1, help="Number of rows in the table; default: as many as in --catalogue.")
    ] = None,
    catalogue: Annotated[
        Path | None,
        typer.Option(help="Ids and titles of the items, for devices to show: catalogue.csv or any item file."),
    ] = None,
    norm_bound: Annotated[
        float | None,
        typer.Option(
            help="Maximum length of a whole update, which devices prove; default: computed. 0: no proof.", min=0
        ),
    ] = None,
    name: Annotated[str, typer.Option(help="A descriptive name for the task.")] = "task",
    layout: Annotated[str, typer.Option(help="binned, or direct as in the paper.")] = "binned",
    placement_loss: Annotated[
        float, typer.Option(help="Binned: the probability that a device with m' items has to leave one out.")
    ] = 1e-6,
    ring_bits: Annotated[int, typer.Option(help="Bits of a number in an update: 32, 64, or 24 for fewer bytes.")] = 32,
    fraction_bits: Annotated[
        int | None, typer.Option(min=0, help="Bits after the binary point; default: 16, or at most 12 of 24.")
    ] = None,
    row_bits: Annotated[
        int, typer.Option(help="Bits of a number in a row that devices read: 32, or 16 for half precision.")
    ] = 32,
    people: Annotated[
        int | None,
        typer.Option(min=1, help="Expected number of people in the fleet; sets the default decays and rounds."),
    ] = None,
    ratings: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Expected number of ratings in the fleet: --people times the items per device that a survey finds.",
        ),
    ] = None,
    rounds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Training rounds; default: enough for five sessions per person in --people, at least 100."
        ),
    ] = None,
    join_seconds: Annotated[int, typer.Option(min=1, help="How long a round accepts new sessions.")] = 60,
    upload_seconds: Annotated[int, typer.Option(min=1, help="How long a round accepts updates.")] = 600,
    loss: Annotated[
        Loss, typer.Option(help="squared for ratings; bpr or softmax for choices; next for events.")
    ] = "squared",
    optimiser: Annotated[Optimiser, typer.Option(help="The optimiser that applies the sum to the model.")] = "adam",
    guard: Annotated[
        float,
        typer.Option(
            min=0, help="Limit on the mean gradient of a row, as a multiple of its usual length; 0: no limit."
        ),
    ] = 8,
    schedule: Annotated[Schedule, typer.Option(help="How the learning rates change over the rounds.")] = "cosine",
    row_rate: Annotated[float, typer.Option(min=0, help="Learning rate of the vectors in rows.")] = 0.02,
    bias_rate: Annotated[
        float | None,
        typer.Option(min=0, help="Learning rate of the biases in rows; default: 0.05, or 0.02 for choices."),
    ] = None,
    dense_rate: Annotated[float, typer.Option(min=0, help="Learning rate of the dense part.")] = 0.001,
    row_decay: Annotated[
        float | None,
        typer.Option(
            min=0,
            help="Decay of the vectors in rows; default: from --people and --ratings, 40 / --people for choices, or 0.",
        ),
    ] = None,
    bias_decay: Annotated[
        float | None,
        typer.Option(min=0, help="Decay of the biases; default: 7 / --people, or 0."),
    ] = None,
    dense_size: Annotated[int, typer.Option(min=0, help="Number of parameters outside the table.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the initial weights; not secret.")] = 0,
    initial_scale: Annotated[float, typer.Option(min=0, help="Standard deviation of the initial weights.")] = 0.05,
    lowest: Annotated[
        float | None, typer.Option(help="Lowest possible rating; predictions are clipped to the scale.")
    ] = None,
    highest: Annotated[float | None, typer.Option(help="Highest possible rating.")] = None,
    centre: Annotated[
        float | None,
        typer.Option(help="Mean rating, as found by a survey; default: the middle of the scale, or 0."),
    ] = None,
    spread: Annotated[
        float | None,
        typer.Option(
            min=0, help="Standard deviation of ratings, as found by a survey; default: a quarter of the scale, or 1."
        ),
    ] = None,
    server1: Annotated[
        Path | None, typer.Option(help="Server 1's pair file: allows devices to send everything through server 0.")
    ] = None,
    server0: Annotated[
        Path | None,
        typer.Option(help="Server 0's directory: with --server1, allows the task to go on as a successor."),
    ] = None,
    privacy: Annotated[
        Path | None, typer.Option(help="A privacy file (docs/privacy.md): the servers then add noise.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Create a task, or explain why it would not be safe."""
    from secemb_tools.operate.task_files import identity_of, read_items_file, relay_key_of, write_task
    from secemb_tools.operate.task_summary import describe_task, warning_of
    from secemb_tools.operate.tasks import TaskOptions, make_task
    from secemb_tools.specification import fraction_bits_of

    with refusals():
        count, file = read_items_file(catalogue, items) if catalogue is not None else (items, None)
        if count is None:
            raise OperationError("give --items, or --catalogue with a file that lists them")
        if server0 is not None and server1 is None:
            raise OperationError("--server0 needs --server1 as well: both servers sign a task's successor")
        options = TaskOptions(
            name=name,
            items=count,
            catalogue=file,
            width=width,
            dense_size=dense_size,
            capacity=capacity,
            layout=layout,
            placement_loss=placement_loss,
            ring_bits=ring_bits,
            fraction_bits=fraction_bits_of(ring_bits, fraction_bits, capacity=capacity, dense_size=dense_size),
            row_bits=row_bits,
            clip=clip,
            norm_bound=norm_bound,
            cohort=cohort,
            min_cohort=min_cohort,
            people=people,
            ratings=ratings,
            rounds=rounds,
            join_seconds=join_seconds,
            upload_seconds=upload_seconds,
            loss=loss,
            optimiser=optimiser,
            guard=guard,
            schedule=schedule,
            row_rate=row_rate,
            bias_rate=bias_rate,
            dense_rate=dense_rate,
            row_decay=row_decay,
            bias_decay=bias_decay,
            seed=seed,
            initial_scale=initial_scale,
            lowest=lowest,
            highest=highest,
            centre=centre,
            spread=spread,
            identity0=identity_of(server0) if server0 is not None else "",
            relay_key=relay_key_of(server1) if server1 is not None else "",
            privacy=privacy,
        )
        task = make_task(options)
        write_task(task, out, file)
        output.show_facts(describe_task(task), as_json=json)
        if warning := warning_of(task):
            output.note(warning)


@app.command()
def show(file: Annotated[Path, typer.Argument(help="A task.json.")], json: AsJson = False) -> None:
    """Show a task, what it costs a device, and its limits."""
    from secemb_tools.operate.task_files import read_task
    from secemb_tools.operate.task_summary import describe_task

    with refusals():
        output.show_facts(describe_task(read_task(file)), as_json=json)


@app.command("list")
def list_(
    server: ServerAddress = HERE, token_file: TokenFile = None, ca: AuthorityFile = None, json: AsJson = False
) -> None:
    """List the tasks that a server knows, and whether each runs there."""
    with operator_client(server, token_file, ca) as client:
        output.show_rows(["task", "name", "state", "in_settings", "fault"], client.tasks(), as_json=json)


@app.command()
def start(
    which: Annotated[str, typer.Argument(help="A task.json, or the name or id of a task that the server knows.")],
    reason: Why,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    json: AsJson = False,
) -> None:
    """Start a task beside the others of a running server. It opens rounds once both servers run it.

    Devices use the tokens that they have. The catalogue is read from the catalogue.csv beside the file.
    """
    from secemb_tools.operate.hosted_tasks import start as start_task

    with operator_client(server, token_file, ca) as client:
        output.show_facts(start_task(client, which, reason), as_json=json)


@app.command()
def stop(
    which: Annotated[str, typer.Argument(help="The name of a task, or the first digits of its id.")],
    reason: Why,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    json: AsJson = False,
) -> None:
    """Stop a task at a server. An unfinished round goes on when the task is started again."""
    with operator_client(server, token_file, ca) as client:
        output.show_facts(client.post(f"tasks/{client.find_task(which)['task']}/stop", reason=reason), as_json=json)


@app.command()
def archive(
    which: Annotated[str, typer.Argument(help="The name of a task, or the first digits of its id.")],
    reason: Why,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    json: AsJson = False,
) -> None:
    """Remove the model and the uploads of a stopped task for good. Its rounds and its budget stay in the ledger."""
    with operator_client(server, token_file, ca) as client:
        found = client.find_task(which)
        if not yes:
            typer.confirm(f"Remove the model of task {found['name']} for good?", abort=True, err=True)
        output.show_facts(client.post(f"tasks/{found['task']}/archive", reason=reason), as_json=json)


def plan(
    items: Annotated[int | None, typer.Option(min=1, help="Number of rows in the table.")] = None,
    capacity: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of items per device in a round (m').")
    ] = None,
    catalogue: Annotated[
        str | None, typer.Option(help="Instead of --items and --capacity: ML100K, ML1M, ML10M, ML25M, Yelp or Amazon.")
    ] = None,
    width: Annotated[int, typer.Option(min=1, help="Numbers per row, including biases.")] = 65,
    dense_size: Annotated[int, typer.Option(min=0, help="Number of parameters outside the table.")] = 0,
    cohort: Annotated[int, typer.Option(min=2, help="Devices in a round.")] = 100,
    fleet: Annotated[int, typer.Option(min=2, help="Total number of devices.")] = 10_000,
    placement_loss: Annotated[
        float, typer.Option(help="The probability that a device with m' items has to leave one out.")
    ] = 1e-6,
    ring_bits: Annotated[int, typer.Option(help="Bits of a number in an update: 32, 64, or 24 for fewer bytes.")] = 32,
    fraction_bits: Annotated[
        int | None, typer.Option(min=0, help="Bits after the binary point; default: 16, or at most 12 of 24.")
    ] = None,
    row_bits: Annotated[
        int, typer.Option(help="Bits of a number in a row that devices read: 32, or 16 for half precision.")
    ] = 32,
    clip: Annotated[float, typer.Option(help="Largest absolute value in a device's update.")] = 2.0,
    upload_seconds: Annotated[int, typer.Option(min=1, help="How long a round accepts updates.")] = 600,
    memory: Annotated[
        float | None, typer.Option(min=0.1, help="Memory of each server in GB; default: this machine's.")
    ] = None,
    link: Annotated[float, typer.Option(min=0.1, help="Bandwidth between the two servers in Mbit/s.")] = 1000.0,
    optimiser: Annotated[Optimiser, typer.Option(help="The optimiser that applies the sum to the model.")] = "adam",
    cluster: Annotated[
        int | None,
        typer.Option(
            min=2,
            metavar="<devices>",
            help="Also plan clusters for this number of devices a day.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0.05, help="Seconds to spend on measuring this machine's kernel.")
    ] = 1.0,
    json: AsJson = False,
) -> None:
    """Estimate the cost of a catalogue and a fleet, and report any limit that they exceed.

    Covers bytes per device, seconds of each stage of a round, memory, disk, and traffic between the servers.
    """
    from secemb_tools.plan import PlanInput, cost, describe

    with refusals():
        given = PlanInput.of(
            catalogue,
            items=items,
            capacity=capacity,
            width=width,
            dense_size=dense_size,
            cohort=cohort,
            fleet=fleet,
            placement_loss=placement_loss,
            ring_bits=ring_bits,
            fraction_bits=fraction_bits,
            row_bits=row_bits,
            clip=clip,
            upload_seconds=upload_seconds,
            memory=memory,
            link=link,
            optimiser=optimiser,
            devices_per_day=cluster,
        )
        with output.busy("measuring this machine: the kernel, the optimiser and the disk"):
            found = cost(given, seconds=seconds)
        output.show_facts(found if json else describe(found), as_json=json)
