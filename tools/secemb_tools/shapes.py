"""What `--json` prints, command by command. These shapes are stable: members may be added, none goes or changes.

A shape is an object with these members, or a list of such objects.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shape:
    """The members of what a command prints."""

    members: tuple[str, ...]
    otherwise: tuple[str, ...] = ()  # where nothing was done
    rows: bool = False  # a list of such objects
    lines: bool = False  # one object a line, for as long as the command runs


_SCENARIO = "scenario"
RUN = (
    *("format", "name", _SCENARIO, "way", "task_id", "finished", "rmse", "plain_rmse", "same_as_plain", "seconds"),
    *("table", "plain_table"),
)
TASK = (
    *("task_id", "name", "items", "row_width", "dense_size", "capacity", "layout", "slots"),
    *(
        "leaves_per_server_and_device",
        "loss_bound",
        "bytes_up_per_device",
        "bytes_down_per_device",
        "transport",
        "relay_key",
        "bytes_up_relayed",
        "bytes_down_relayed",
        "clip",
        "precision",
    ),
    *("overflow_budget", "cohort", "min_cohort", "rounds", "join_seconds", "upload_seconds", "optimiser", "seed"),
    "initial_scale",
)
DATA = (
    *("name", "people", "items", "ratings", "density", "user_features", "item_features", "lowest", "highest"),
    *("mean_ratings_per_person", "suggested_capacity"),
)
PLAN = (
    *("items", "capacity", "layout", "slots", "loss_bound", "bytes_up_per_device", "bytes_down_per_device"),
    *("bytes_up_relayed", "bytes_down_relayed"),
    *("bytes_up_whole_table", "bytes_down_whole_table", "kernel_seconds_per_device", "kernel_seconds_per_round"),
    *("rounds_until_everybody_took_part", "kernel_seconds_until_everybody_took_part", "memory_bytes"),
    *("stored_bytes_per_round", "kernel"),
)
VERSION = ("version", "digest", "published", "file")
RECEIPT = (
    *("outcome", "round", "kind", "model_version", "model_digest", "sent", "received", "slots", "truncated"),
    *("complete", "date", "trouble"),
)
NOT_DONE = ("outcome", "reason", "seconds")
KEY = ("key_id", "state", "not_before", "not_after")
TOKEN = ("name", "hash", "created", "revoked")

SHAPES: dict[str, Shape] = {
    "demo": Shape((*RUN, "good", "rounds", "bytes_per_device", "servers", "sum_zeros")),
    "simulate": Shape(RUN),
    "run list": Shape(("name", "model", "devices", "rounds", "finished", "rmse", "plain_rmse", "seconds"), rows=True),
    "run show": Shape(RUN),
    "run compare": Shape(("first", "second", "same", "differences", "rounds")),
    "status": Shape(("servers", "same_task", "digests_equal")),
    "init": Shape(("settings", "certificate", "operator_token")),
    "renew": Shape(("certificate",)),
    "check": Shape(("ok", "checks")),
    "pair import": Shape(("role", "certificate")),
    "task create": Shape(TASK),
    "task show": Shape(TASK),
    "token create": Shape(("name", "token"), rows=True),
    "token list": Shape(TOKEN, rows=True),
    "token revoke": Shape(TOKEN),
    "privacy project": Shape(
        ("multiplier", "delta", "rate", "rounds", "epsilon", "epsilon_by_divergence", "budget", "rounds_within_budget")
    ),
    "relay-key list": Shape(KEY, rows=True),
    "relay-key rotate": Shape(KEY),
    "ledger upgrade": Shape(("upgraded",)),
    "model list": Shape(VERSION, rows=True),
    "model show": Shape(
        (
            *VERSION,
            *("items", "row_width", "dense_size", "bytes", "mean_row_norm", "largest_row_norm", "mean_bias"),
            "dense_norm",
        )
    ),
    "model export": Shape(("version", "digest", "file")),
    "model import": Shape(("version", "digest")),
    "model rollback": Shape(("source", "seen", "made", "state")),
    "config show": Shape(("setting", "value", "origin"), rows=True),
    "device join": Shape(("home", "task_id", "task", "items", "ratings", "bytes_per_round")),
    "device once": Shape(RECEIPT, otherwise=NOT_DONE),
    "device loop": Shape(RECEIPT, otherwise=NOT_DONE, lines=True),
    "device recommend": Shape(("item", "score"), rows=True),
    "data fetch": Shape(("path", *DATA)),
    "data show": Shape(DATA),
    "data split": Shape(("how", "seed", "train", "test", "out")),
    "plan": Shape(PLAN),
    "kernel": Shape(("kernel", "instruction_sets", "reason")),
    "bench": Shape(("machine", "kernel", "sharing", "catalogues", "devices", "bars")),
    "loadtest": Shape(("machine", "runs")),
    "wire": Shape(("machine", "bytes", "reads")),
    "report dp": Shape(("ratings", "seed", "bias_only_rmse", "runs")),
    "report utility": Shape(("ratings", "seed", "train", "test", "bias_only_rmse", "models")),
}
