"""`secemb demo`, `secemb dev` and `secemb simulate`: the protocol on this machine."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from secemb_tools import output
from secemb_tools.cli.options import (
    RUNS,
    AsJson,
    CatalogueFile,
    ColumnNames,
    JunkShare,
    Loss,
    Optimiser,
    RunsFolder,
    Schedule,
    TransportOption,
    refusals,
)
from secemb_tools.transport import Transport

if TYPE_CHECKING:
    from secemb_tools.datasets import RatingSet

# The names from the registry, repeated here: otherwise every command would have to import numpy and the SDK.
Model = Annotated[str, typer.Option(help="One of mf, ncf, fm, deepfm, sasrec, caser, lm; all but mf need torch.")]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Ratings, events or texts: a directory, a file or the name of a downloaded set; default: made-up data."
    ),
]
Devices = Annotated[
    int | None, typer.Option(min=2, help="Total number of devices; default: 200, or everyone in --data.")
]
Cohort = Annotated[
    int | None,
    typer.Option(min=2, help="Devices in a round; default: 100, a fifth of a small fleet, or 1/60 of a large one."),
]
Rounds = Annotated[
    int | None, typer.Option(min=1, help="Training rounds; default: about five per device, at least 100.")
]
Items = Annotated[int, typer.Option(min=10, help="Number of items or words in the made-up catalogue.")]
Seed = Annotated[int, typer.Option(min=0, help="On one machine, the same seed gives the same model, bit for bit.")]

Unit = Literal["user", "record"]


class Comparison(StrEnum):
    """The run to compare a private run with."""

    PLAIN = "plain"


def demo(
    devices: Devices = None,
    rounds: Annotated[int, typer.Option(min=1, help="Training rounds.")] = 25,
    items: Items = 400,
    cohort: Cohort = None,
    data: Data = None,
    columns: ColumnNames = None,
    catalogue: CatalogueFile = None,
    junk: JunkShare = 0.01,
    model: Model = "mf",
    seed: Seed = 1,
    transport: TransportOption = Transport.RELAYED,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the servers running afterwards for a device of your own, until Ctrl-C.")
    ] = False,
    out: Annotated[Path, typer.Option(help="The report to write.")] = Path("build/demo.html"),
    json: AsJson = False,
) -> None:
    """Run everything on this machine: two servers, simulated devices over HTTP, a live view and a report."""
    from secemb_tools.demo.demo import DemoOptions, run
    from secemb_tools.simulation.scenario import make_world

    with refusals():
        with output.busy("reading ratings"):
            ratings = _read(data, columns, catalogue, junk, model, seed)
            world = make_world(
                devices=devices, rounds=rounds, items=items, cohort=cohort, data=ratings, model=model, seed=seed
            )
        code = run(DemoOptions(world=world, out=out, transport=transport, keep=keep, as_json=json))
    raise typer.Exit(code)


def dev(
    model: Model = "mf",
    items: Items = 500,
    data: Data = None,
    columns: ColumnNames = None,
    catalogue: CatalogueFile = None,
    junk: JunkShare = 0.01,
    cohort: Annotated[int, typer.Option(min=2, help="Devices in a round: yours and the helpers.")] = 5,
    warm_up: Annotated[int, typer.Option(min=0, help="Rounds that the helpers run on their own at the start.")] = 20,
    port: Annotated[
        int | None,
        typer.Option(
            min=1, max=65529, help="Port of server 0; the next six are used as well. Default: any free ports."
        ),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Serve devices over HTTPS, and print the certificate to trust.")
    ] = False,
    web: Annotated[
        bool, typer.Option("--web", help="Serve a page with a device in it, built from sdk/typescript.")
    ] = False,
    seed: Seed = 1,
    json: AsJson = False,
) -> None:
    """For app developers: run both servers with helper devices, so that a single real device can complete a round.

    Prints the addresses, the task's id, a token and a program that uses them. Ctrl-C stops it with exit code 0.
    """
    from secemb_tools.dev.dev import DevOptions, run
    from secemb_tools.simulation.scenario import make_world

    with refusals():
        with output.busy("reading ratings"):
            ratings = _read(data, columns, catalogue, junk, model, seed)
            world = make_world(items=items, cohort=cohort, data=ratings, model=model, seed=seed, evaluate_every=5)
        code = run(DevOptions(world=world, warm_up=warm_up, port=port, tls=tls, web=web, as_json=json))
    raise typer.Exit(code)


def simulate(
    devices: Devices = None,
    items: Items = 400,
    data: Data = None,
    columns: ColumnNames = None,
    catalogue: CatalogueFile = None,
    junk: JunkShare = 0.01,
    model: Model = "mf",
    seed: Seed = 1,
    rounds: Rounds = None,
    cohort: Cohort = None,
    capacity: Annotated[
        int | None, typer.Option(min=4, help="Maximum number of items per device in a round (m').")
    ] = None,
    loss: Annotated[
        Loss | None, typer.Option(help="squared for ratings; bpr or softmax for choices; next for events.")
    ] = None,
    dimension: Annotated[int | None, typer.Option(min=0, help="Length of an item's vector; 0: biases only.")] = None,
    optimiser: Annotated[
        Optimiser | None, typer.Option(help="The optimiser that applies the sum to the model.")
    ] = None,
    guard: Annotated[
        float | None,
        typer.Option(
            min=0, help="Limit on the mean gradient of a row, as a multiple of its usual length; 0: no limit."
        ),
    ] = None,
    schedule: Annotated[Schedule | None, typer.Option(help="How the learning rates change over the rounds.")] = None,
    rate: Annotated[float | None, typer.Option(min=0, help="Learning rate of the vectors in rows.")] = None,
    bias_rate: Annotated[float | None, typer.Option(min=0, help="Learning rate of the biases in rows.")] = None,
    dense_rate: Annotated[float | None, typer.Option(min=0, help="Learning rate of the dense part.")] = None,
    scale: Annotated[float | None, typer.Option(min=0, help="Standard deviation of the initial weights.")] = None,
    penalty: Annotated[float | None, typer.Option(min=0, help="Penalty on vectors, per rating.")] = None,
    person_penalty: Annotated[float | None, typer.Option(min=0, help="Penalty on a person's vector.")] = None,
    bias_penalty: Annotated[float | None, typer.Option(min=0, help="Penalty on a person's bias.")] = None,
    dense_penalty: Annotated[float | None, typer.Option(min=0, help="Penalty on the dense part, per device.")] = None,
    row_pull: Annotated[float | None, typer.Option(min=0, help="Penalty on an item's vector, over the fleet.")] = None,
    bias_pull: Annotated[float | None, typer.Option(min=0, help="Penalty on an item's bias, over the fleet.")] = None,
    lowest: Annotated[
        float | None, typer.Option(help="Lowest possible rating; default: the lowest in the data.")
    ] = None,
    highest: Annotated[
        float | None, typer.Option(help="Highest possible rating; default: the highest in the data.")
    ] = None,
    centre: Annotated[float | None, typer.Option(help="Mean rating; default: found by a survey.")] = None,
    spread: Annotated[
        float | None, typer.Option(min=0, help="Standard deviation of ratings; default: found by a survey.")
    ] = None,
    ring_bits: Annotated[
        int | None, typer.Option(help="Bits of a number in an update: 32, 64, or 24 for fewer bytes.")
    ] = None,
    fraction_bits: Annotated[int | None, typer.Option(min=0, help="Bits of it after the binary point.")] = None,
    row_bits: Annotated[
        int | None, typer.Option(help="Bits of a number in a row that devices read: 32, or 16 for half precision.")
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(min=1, help="Gradient steps per round for a private part without a closed-form solution."),
    ] = None,
    min_count: Annotated[
        int | None,
        typer.Option(min=1, help="For texts: words that occur less often in training become <unknown>; default: 2."),
    ] = None,
    evaluate_every: Annotated[int, typer.Option(min=2, help="Evaluate every this many rounds.")] = 6,
    patience: Annotated[
        int,
        typer.Option(min=0, help="Stop if the best window of five evaluations is this many evaluations old; 0: never."),
    ] = 4,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget of the whole run; default: no noise.")] = None,
    delta: Annotated[float | None, typer.Option(help="The δ of that budget; default: 0.0001.")] = None,
    unit: Annotated[Unit | None, typer.Option(help="What the budget protects; default: user.")] = None,
    clip: Annotated[float | None, typer.Option(help="Largest norm of a user's update, or of a record's.")] = None,
    privacy: Annotated[
        Path | None, typer.Option(help="Instead of these four: a privacy file, as for `secemb task create`.")
    ] = None,
    compare: Annotated[
        Comparison | None, typer.Option(help="Also run without protection from the same seeds, and compare.")
    ] = None,
    runs: RunsFolder = RUNS,
    name: Annotated[str | None, typer.Option(help="The run's name; default: derived from its settings.")] = None,
    save_every: Annotated[int, typer.Option(min=1, help="Save the state every this many rounds.")] = 10,
    json: AsJson = False,
) -> None:
    """Run the protocol without HTTP for thousands of devices. Repeat the command to resume an unfinished run.

    Defaults are derived from the data and recorded in the run.
    """
    from secemb_tools.simulation.noise import noise_wanted
    from secemb_tools.simulation.scenario import make_world
    from secemb_tools.simulation.view import run_with_progress

    settings = {
        "rounds": rounds,
        "cohort": cohort,
        "capacity": capacity,
        "loss": loss,
        "dimension": dimension,
        "optimiser": optimiser,
        "guard": guard,
        "schedule": schedule,
        "rate": rate,
        "bias_rate": bias_rate,
        "dense_rate": dense_rate,
        "scale": scale,
        "penalty": penalty,
        "person_penalty": person_penalty,
        "bias_penalty": bias_penalty,
        "dense_penalty": dense_penalty,
        "row_pull": row_pull,
        "bias_pull": bias_pull,
        "lowest": lowest,
        "highest": highest,
        "centre": centre,
        "spread": spread,
        "ring_bits": ring_bits,
        "fraction_bits": fraction_bits,
        "row_bits": row_bits,
        "epochs": epochs,
    }
    with refusals():
        with output.busy("reading ratings"):
            ratings = _read(data, columns, catalogue, junk, model, seed, min_count)
            world = make_world(
                devices=devices,
                data=ratings,
                items=items,
                model=model,
                seed=seed,
                evaluate_every=evaluate_every,
                patience=patience,
                noise=noise_wanted(privacy=privacy, epsilon=epsilon, delta=delta, unit=unit, clip=clip),
                **settings,
            )
        code = run_with_progress(
            world, runs=runs, name=name, compare_plain=compare is not None, save_every=save_every, as_json=json
        )
    raise typer.Exit(code)


def _read(
    data: Path | None,
    columns: str | None,
    catalogue: Path | None,
    junk: float,
    model: str,
    seed: int,
    min_count: int | None = None,
) -> "RatingSet | None":
    """Return the ratings or texts at this path; None if they are to be generated."""
    from secemb_tools.simulation.scenario import read_data

    if data is None:
        return None
    return read_data(
        data, model=model, seed=seed, least=min_count, columns=columns, catalogue=catalogue, junk_share=junk
    )
