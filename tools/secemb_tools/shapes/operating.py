"""What the commands of an operator print."""

from secemb_tools.shapes.kinds import Many, Named, OneOf, Shape, every

SERVER: dict[str, Shape] = {
    "url": str,
    "role": int,
    "ready": bool,
    "checks": Many({"check": str, "ok": bool, "hint": str | None}, may_be_empty=True),
    **every(str, "task", "task_id"),
    "cohort": int,
    "round": OneOf(
        {
            "number": int,
            **every(str, "kind", "state"),
            **every(int, "admitted", "keys", "updates"),
            "counted": int | None,
            **every(float, "opened_at", "join_until", "upload_until"),
        },
        None,
    ),
    "model_version": int | None,
    "model_digest": str | None,
    "refusals": Named(int, may_be_empty=True),
}
TASK: dict[str, Shape] = {
    **every(str, "task_id", "name"),
    **every(int, "items", "row_width", "dense_size", "capacity"),
    "layout": str,
    **every(int, "slots", "leaves_per_server_and_device"),
    "loss_bound": float,
    **every(int, "bytes_up_per_device", "bytes_down_per_device"),
    **every(str, "transport", "relay_key"),
    **every(int, "bytes_up_relayed", "bytes_down_relayed"),
    "bytes_are": str,
    **every(float, "clip", "precision"),
    "overflow_budget": str,
    **every(int, "cohort", "min_cohort", "rounds", "join_seconds", "upload_seconds"),
    "optimiser": str,
    "seed": int,
    **every(str, "initial_scale", "privacy", "privacy_known"),
}
PROJECTION: dict[str, Shape] = {
    **every(float, "multiplier", "delta"),
    "sampling_rate": float | None,
    "rounds": int,
    **every(float, "epsilon", "epsilon_known", "epsilon_by_divergence"),
    "budget": float | None,
    "rounds_within_budget": int | None,
}
SPENT: dict[str, Shape] = {
    "kind": str,
    "shares": int,
    **every(float, "epsilon", "epsilon_known", "delta", "budget", "projected", "projected_known"),
    "remaining": int,
    "exhausted": bool,
}
VERSION: dict[str, Shape] = {"version": int, "digest": str, "published": bool, "file": bool}
WEIGHTS: dict[str, Shape] = {
    **VERSION,
    **every(int, "items", "row_width", "dense_size", "bytes"),
    **every(float, "mean_row_norm", "largest_row_norm", "mean_bias", "dense_norm"),
}
KEY: dict[str, Shape] = every(str, "key_id", "state", "not_before", "not_after")
TOKEN: dict[str, Shape] = {**every(str, "name", "hash", "created"), "revoked": str | None}
FINDING: dict[str, Shape] = every(str, "check", "status", "text", "fix")
PAIR: dict[str, Shape] = {
    "role": int,
    "certificate": str,
    **every(str, "peer_url?", "relay_key?", "bearer_hash?", "ticket_key?", "task_id?"),
}

OPERATING: dict[str, Shape] = {
    "status": {"servers": Many(SERVER), **every(bool | None, "same_task", "digests_equal")},
    "init": every(str, "settings", "certificate", "operator_token"),
    "renew": {"certificate": str},
    "check": {"ok": bool, "checks": Many(FINDING)},
    "pair import": PAIR,
    "task create": TASK,
    "task show": TASK,
    "token create": Many({"name": str, "token": str}),
    "token list": Many(TOKEN),
    "token revoke": TOKEN,
    "privacy project": PROJECTION,
    "privacy show": Many(SPENT, may_be_empty=True),
    "relay-key list": Many(KEY),
    "relay-key rotate": KEY,
    "ledger upgrade": {"upgraded": bool},
    "model list": Many(VERSION),
    "model show": WEIGHTS,
    "model export": {"version": int, "digest": str, "file": str},
    "model import": {"version": int, "digest": str},
    "model rollback": {"source": int, "seen": int, "made": int | None, "state": str},
    "config show": Many({"setting": str, "value": str | float | bool | None, "origin": str}),
}
