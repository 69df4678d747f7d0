"""What a device on the command line prints."""

from secemb_tools.shapes.kinds import Lines, Many, OneOf, Shape, every

RECEIPT: dict[str, Shape] = {
    "outcome": str,
    "round": int,
    "kind": str,
    "model_version": int,
    "model_digest": str,
    **every(Many(int), "sent", "received"),
    **every(int, "slots", "truncated"),
    "complete": bool,
    **every(str, "date", "transport"),
    "trouble": str | None,
}
NOT_DONE: dict[str, Shape] = {"outcome": str, "reason": str, "seconds": float}

TAKING_PART: dict[str, Shape] = {
    "device join": {
        **every(str, "home", "task_id", "task"),
        **every(int, "items", "ratings", "bytes_per_round"),
    },
    "device once": OneOf(RECEIPT, NOT_DONE),
    "device loop": Lines(OneOf(RECEIPT, NOT_DONE)),
    "device recommend": Many({"item": int, "score": float}),
}
