"""The output of `--json`, by command. It is stable: members may be added, but none is removed or changes its meaning.

`python -m secemb_tools.cli.results` prints them as a JSON Schema, which is docs/reference/cli.schema.json.
"""

import json
from typing import Any, Literal

from pydantic import TypeAdapter
from typing_extensions import TypedDict

from secemb_tools import device, kernel, plan
from secemb_tools.datasets import splits, summary
from secemb_tools.demo import evidence, person, result
from secemb_tools.dev import connection
from secemb_tools.local.rounds import RoundRecord
from secemb_tools.operate import (
    backup,
    catalogue_edits,
    control,
    directory,
    findings,
    models,
    operator_api,
    operator_tokens,
    pairing,
    privacy,
    recovery,
    relay_keys,
    rotation,
    settings,
    status,
    successors,
    task_summary,
    tokens,
)
from secemb_tools.simulation import noise, recommender


class Upgraded(TypedDict):
    """An upgraded ledger."""

    upgraded: bool


class Recommendation(TypedDict):
    """An item and how well it fits the owner; without a catalogue it has no id and no title."""

    item: int
    score: float
    id: str | None
    title: str | None


class Fetched(summary.DatasetSummary):
    """A downloaded rating set."""

    path: str


class Row(TypedDict):
    """One round of a run."""

    round: int
    sessions: int
    version: int
    kind: str
    digest: str
    rmse: float | None
    mae: float | None
    figures: dict[str, float]  # of the round's devices, if it was an evaluation
    sums: list[float]  # what the figures are based on
    window: dict[str, Any]  # figures of the newest evaluations together, and their rounds


class Scenario(TypedDict):
    """The settings of a run, as `secemb simulate` names them."""

    data: str
    devices: int
    items: int
    evaluate_every: int
    patience: int
    seed: int
    model: str
    loss: str
    rounds: int
    cohort: int
    capacity: int
    dimension: int | None
    optimiser: str
    guard: float
    schedule: str
    rate: float
    bias_rate: float
    dense_rate: float
    scale: float
    penalty: float
    person_penalty: float
    bias_penalty: float
    dense_penalty: float
    row_pull: float
    bias_pull: float
    centre: float
    spread: float
    lowest: float | None
    highest: float | None
    ring_bits: int
    fraction_bits: int
    row_bits: int
    bound: int
    epochs: int
    noise: noise.NoiseOptions | None


class Stretch(TypedDict):
    """The rounds of a run until it was continued, and those that its task had."""

    until: int
    rounds: int


class Run(TypedDict):
    """A run: its settings and one row per round."""

    format: str
    name: str
    scenario: Scenario
    way: str
    task_id: str
    finished: bool
    ended: str  # why: all rounds, stopped early or interrupted
    rmse: float | None
    plain_rmse: float | None
    same_as_plain: bool | None
    seconds: float
    final: dict[str, dict[str, Any]] | None  # over all that was held out: the model, and simpler ones
    continued: list[Stretch]
    table: list[Row]
    plain_table: list[Row] | None


class RunRow(TypedDict):
    """A run in one line."""

    name: str
    model: str
    devices: int
    rounds: int
    ended: str  # all rounds, stopped early or interrupted
    held_out: int | None  # interactions that the figures are from
    rmse: float | None
    biases: float | None  # their RMSE on the same ratings
    ndcg: float | None
    popularity: float | None  # its NDCG on the same choices
    interval: list[float] | None  # of the RMSE or NDCG
    coverage: float | None
    seconds: float


class RoundComparison(TypedDict):
    """One round of two runs."""

    round: int
    first_rmse: float | None
    second_rmse: float | None
    first_ndcg: float | None
    second_ndcg: float | None
    same: bool


class RunComparison(TypedDict):
    """Two runs side by side."""

    first: str
    second: str
    same: bool
    differences: dict[str, list[str | float | None]]
    rounds: list[RoundComparison]


class Demo(Run):
    """A demonstration: its run, and what both servers saw of it."""

    good: bool
    rounds: list[RoundRecord]
    transport: str
    ratings_per_device: list[int]
    bytes_per_device: evidence.Traffic
    servers: list[evidence.ServerView]
    baselines: result.Baselines | None
    person: person.Person | None
    sum_zeros: float | None
    sum_compressed: float | None


Outcome = device.ContributedFacts | device.PostponedFacts | device.EndedFacts

RESULTS: dict[str, Any] = {
    "backup": backup.Backup,
    "catalogue add": catalogue_edits.CatalogueEdit,
    "catalogue diff": list[catalogue_edits.ItemDifference],
    "catalogue retire": catalogue_edits.CatalogueEdit,
    "catalogue show": catalogue_edits.CatalogueFacts,
    "check": findings.CheckReport,
    "config show": list[settings.SettingRow],
    "data fetch": Fetched,
    "data show": summary.DatasetSummary,
    "data split": splits.SplitSummary,
    "demo": Demo,
    "dev": connection.Facts,
    "device join": device.NewDevice,
    "device loop": Outcome,  # one per line
    "device once": Outcome,
    "device recommend": list[Recommendation],
    "drain": control.Control,
    "init": directory.Installed,
    "kernel": kernel.KernelFacts,
    "ledger export": backup.LedgerFile,
    "ledger import": backup.LedgerFile,
    "ledger upgrade": Upgraded,
    "model export": models.ExportedVersion,
    "model fetch": list[recovery.FetchedVersion],
    "model import": models.ImportedVersion,
    "model list": list[models.VersionRow],
    "model reset-optimiser": recovery.ResetOptimiser,
    "model rollback": operator_api.Rollback,
    "model show": models.VersionSummary,
    "operator actions": list[operator_tokens.ActionRow],
    "operator add": operator_tokens.NewOperator,
    "operator list": list[operator_tokens.OperatorRow],
    "operator revoke": operator_tokens.OperatorRow,
    "pair import": pairing.Fingerprints,
    "pair rotate": rotation.Rotation,
    "pair switch": rotation.Rotation,
    "plan": plan.Cost,
    "privacy project": privacy.Projection,
    "privacy show": list[privacy.Spending],
    "relay-key list": list[relay_keys.RelayKeyRow],
    "relay-key rotate": relay_keys.RelayKeyRow,
    "restore": backup.Backup,
    "round abort": control.RoundEnd,
    "round close": control.RoundEnd,
    "run compare": RunComparison,
    "run continue": Run,
    "run export": recommender.Exported,
    "run list": list[RunRow],
    "run recommend": list[Recommendation],
    "run show": Run,
    "simulate": Run,
    "status": status.Status,  # with --watch, one per line
    "task agree": successors.Agreement,
    "task archive": operator_api.KnownTask,
    "task create": task_summary.TaskSummary,
    "task list": list[operator_api.KnownTask],
    "task pause": control.Control,
    "task resume": control.Control,
    "task show": task_summary.TaskSummary,
    "task start": operator_api.KnownTask,
    "task stop": operator_api.KnownTask,
    "task succeed": successors.Agreement,
    "token create": list[tokens.NewToken],
    "token import": tokens.ImportedTokens,
    "token list": list[tokens.TokenRow],
    "token replace": tokens.NewToken,
    "token resume": tokens.TokenRow,
    "token revoke": tokens.TokenRow,
    "token suspend": tokens.TokenRow,
}


def schema() -> dict[str, Any]:
    """Return the JSON Schema of every command's output, under `properties` by the command's name."""
    adapters: list[tuple[str, Literal["serialization"], TypeAdapter[Any]]]
    adapters = [(name, "serialization", TypeAdapter(one)) for name, one in RESULTS.items()]
    found, definitions = TypeAdapter.json_schemas(adapters, title="What `secemb … --json` prints, by command")
    return {**definitions, "properties": {name: one for (name, _), one in found.items()}}


if __name__ == "__main__":
    print(json.dumps(schema(), indent=1, sort_keys=True, ensure_ascii=False))
