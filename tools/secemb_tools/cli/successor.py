"""`secemb task succeed` and `secemb task agree`: how a running task goes on as another one."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from secemb_tools import output
from secemb_tools.cli.control import HERE, ServerAddress, TokenFile, Why, operator_client
from secemb_tools.cli.options import AsJson, AuthorityFile, TaskName
from secemb_tools.errors import OperationError

if TYPE_CHECKING:
    from secemb_tools.operate.successors import Agreement

NewRows = Annotated[
    Literal["seeded", "mean", "zero"],
    typer.Option("--start", help="How new rows start: as in a new task, as the mean of kept rows, or as zeros."),
]
Fresh = Annotated[
    bool, typer.Option("--fresh-budget", help="Do not count what this task and its predecessors have spent.")
]


def succeed(
    reason: Why,
    out: Annotated[
        Path | None,
        typer.Option(help="Where to write the successor's task.json and catalogue.csv, for the other side."),
    ] = None,
    catalogue: Annotated[
        Path | None, typer.Option(help="The new list of items: catalogue.csv or any item file; default: unchanged.")
    ] = None,
    items: Annotated[int | None, typer.Option(min=1, help="Number of rows, of a task without a catalogue.")] = None,
    name: Annotated[str | None, typer.Option(help="A descriptive name; default: unchanged.")] = None,
    capacity: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of items per device in a round (m'); default: unchanged.")
    ] = None,
    placement_loss: Annotated[
        float | None, typer.Option(help="Binned: the probability that a device with m' items has to leave one out.")
    ] = None,
    cohort: Annotated[int | None, typer.Option(min=1, help="Maximum number of sessions in a round.")] = None,
    min_cohort: Annotated[int | None, typer.Option(min=1, help="Minimum number of sessions in a sum.")] = None,
    rounds: Annotated[
        int | None, typer.Option(min=1, help="Training rounds of the successor; default: as many.")
    ] = None,
    join_seconds: Annotated[int | None, typer.Option(min=1, help="How long a round accepts new sessions.")] = None,
    upload_seconds: Annotated[int | None, typer.Option(min=1, help="How long a round accepts updates.")] = None,
    row_rate: Annotated[float | None, typer.Option(min=0, help="Learning rate of the vectors in rows.")] = None,
    bias_rate: Annotated[float | None, typer.Option(min=0, help="Learning rate of the biases in rows.")] = None,
    dense_rate: Annotated[float | None, typer.Option(min=0, help="Learning rate of the dense part.")] = None,
    row_decay: Annotated[float | None, typer.Option(min=0, help="Decay of the vectors in rows.")] = None,
    bias_decay: Annotated[float | None, typer.Option(min=0, help="Decay of the biases.")] = None,
    privacy: Annotated[Path | None, typer.Option(help="A privacy file (docs/privacy.md); default: unchanged.")] = None,
    start: NewRows = "seeded",
    fresh_budget: Fresh = False,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    task: TaskName = None,
    json: AsJson = False,
) -> None:
    """Make the successor of a running task, and agree to it on this server.

    The servers switch between two rounds, once both operators have agreed to the same. Both may run this command with
    the same options, or the other operator agrees to the files in --out with `secemb task agree`.
    """
    from secemb_tools.operate.successors import Changes, agree, running_task, successor_of, write_successor
    from secemb_tools.operate.task_files import read_items_file

    with operator_client(server, token_file, ca, task) as client:
        count, file = read_items_file(catalogue, items) if catalogue is not None else (items, None)
        before = running_task(client)
        if catalogue is None and before.catalogue and items is not None:
            raise OperationError("this task has a catalogue; give the new one with --catalogue instead of --items")
        changes = Changes(
            name=name,
            items=count,
            catalogue=file,
            capacity=capacity,
            placement_loss=placement_loss,
            cohort=cohort,
            min_cohort=min_cohort,
            rounds=rounds,
            join_seconds=join_seconds,
            upload_seconds=upload_seconds,
            row_rate=row_rate,
            bias_rate=bias_rate,
            dense_rate=dense_rate,
            row_decay=row_decay,
            bias_decay=bias_decay,
            privacy=privacy,
        )
        made = successor_of(before, changes)
        if out is not None:
            write_successor(made, file, out)
        budget = "fresh" if fresh_budget else "continued"
        _show(agree(client, made, file, start=start, budget=budget, reason=reason), as_json=json)


def agree(
    reason: Why,
    file: Annotated[
        Path | None, typer.Argument(help="The task.json that `secemb task succeed --out` wrote; not for --withdraw.")
    ] = None,
    withdraw: Annotated[bool, typer.Option("--withdraw", help="Withdraw this server's agreement.")] = False,
    start: NewRows = "seeded",
    fresh_budget: Fresh = False,
    server: ServerAddress = HERE,
    token_file: TokenFile = None,
    ca: AuthorityFile = None,
    task: TaskName = None,
    json: AsJson = False,
) -> None:
    """Agree to a successor that the other operator has made, or withdraw the agreement.

    The catalogue is read from the catalogue.csv beside the file; without one, it is unchanged.
    """
    from secemb_tools.operate.successors import agree as agree_to
    from secemb_tools.operate.successors import catalogue_beside
    from secemb_tools.operate.task_files import read_task

    if withdraw == (file is not None):
        raise typer.BadParameter("give the successor's task.json, or --withdraw", param_hint="FILE")
    with operator_client(server, token_file, ca, task) as client:
        if file is None:
            _show(client.delete("successor", reason=reason), as_json=json)
            return
        made, catalogue = read_task(file), catalogue_beside(file)
        budget = "fresh" if fresh_budget else "continued"
        _show(agree_to(client, made, catalogue, start=start, budget=budget, reason=reason), as_json=json)


def _show(found: "Agreement", *, as_json: bool) -> None:
    output.show_facts(found, as_json=as_json)
    if found["switched"]:
        output.note("The servers have switched to the successor.")
    elif found["agreement"] is not None:
        output.note(
            "The servers switch once the other operator has agreed to the same. Compare 'agreement' with them, and"
            " check that 'kept', 'new' and 'retired' are what you expect."
        )
