"""What demonstrations, simulations, reports and rating sets print."""

from secemb_tools.shapes.kinds import Many, Named, OneOf, Shape, every

ROW: dict[str, Shape] = {
    **every(int, "round", "sessions", "version"),
    **every(str, "kind", "digest"),
    **every(float | None, "rmse", "mae"),
}
SCENARIO: dict[str, Shape] = {
    **every(str, "model", "data"),
    **every(int, "devices", "items", "rounds", "cohort", "capacity", "dimension", "evaluate_every", "epochs", "seed"),
    "rate": str | None,
}
RUN: dict[str, Shape] = {
    **every(str, "format", "name"),
    "scenario": SCENARIO,
    **every(str, "way", "task_id"),
    "finished": bool,
    **every(float | None, "rmse", "plain_rmse"),
    "same_as_plain": bool | None,
    "seconds": float,
    "table": Many(ROW),
    "plain_table": OneOf(Many(ROW), None),
}
SERVER_VIEW: dict[str, Shape] = {
    **every(int, "role", "sessions", "messages", "keys_bytes", "update_bytes", "lengths", "repeated"),
    "compressed": float,
    **every(float | None, "share_ones", "share_compressed", "cpu_seconds"),
}
DEMO: dict[str, Shape] = {
    **RUN,
    "good": bool,
    "rounds": Many(
        {
            **every(int, "round", "joined", "retrieved", "uploaded", "matched", "dropped", "version"),
            **every(str, "kind", "digest"),
            "seconds": float,
            "digests_equal": bool,
            "figures": Named(float, may_be_empty=True),
        }
    ),
    "transport": str,
    "ratings_per_device": Many(int),
    "bytes_per_device": every(int, "sent", "received", "full_sent", "full_received"),
    "servers": Many(SERVER_VIEW),
    **every(float | None, "sum_zeros", "sum_compressed"),
}
COMPARISON: dict[str, Shape] = {
    **every(str, "first", "second"),
    "same": bool,
    "differences": Named(Many(str | float | None), may_be_empty=True),
    "rounds": Many({"round": int, "first_rmse": float | None, "second_rmse": float | None, "same": bool}),
}
DATA: dict[str, Shape] = {
    "name": str,
    **every(int, "people", "items", "ratings"),
    "density": float,
    **every(int, "user_features", "item_features"),
    **every(float, "lowest", "highest", "mean_ratings_per_person"),
    "suggested_capacity": int,
}
NOISY_RUN: dict[str, Shape] = {
    "plan": {
        "model": str,
        "cohort": int,
        **every(str, "unit", "where"),
        "budget": float | None,
        "delta": float,
        "rounds": int,
    },
    **every(float | None, "multiplier", "spent", "spent_known"),
    **every(float, "rmse", "best"),
}
TRAINED: dict[str, Shape] = {
    "model": str,
    "rounds": int,
    **every(float | None, "paper", "bar"),
    "curve": Many({"round": int, "plain": float, "private": float | None}),
    "same_bits": bool | None,
    **every(float, "plain_seconds", "private_seconds"),
    **every(int, "sessions", "clipped", "failed"),
    "difference": float | None,
    "good": bool,
}

RESEARCHING: dict[str, Shape] = {
    "demo": DEMO,
    "simulate": RUN,
    "run list": Many(
        {
            **every(str, "name", "model"),
            **every(int, "devices", "rounds"),
            "finished": bool,
            **every(float | None, "rmse", "plain_rmse"),
            "seconds": float,
        }
    ),
    "run show": RUN,
    "run compare": COMPARISON,
    "data fetch": {"path": str, **DATA},
    "data show": DATA,
    "data split": {"how": str, "seed": int, "train": int, "test": int, "out": str},
    "report dp": {"ratings": str, "seed": int, "bias_only_rmse": float, "runs": Many(NOISY_RUN)},
    "report utility": {
        "ratings": str,
        **every(int, "seed", "train", "test"),
        "bias_only_rmse": float,
        "models": Many(TRAINED),
    },
}
