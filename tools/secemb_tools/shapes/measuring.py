"""What measurements, plans and vectors print."""

from secemb_tools.shapes.kinds import Many, Named, Shape, every

PLAN: dict[str, Shape] = {
    **every(int, "items", "capacity"),
    "layout": str,
    "slots": int,
    "loss_bound": float,
    **every(int, "bytes_up_per_device", "bytes_down_per_device", "bytes_up_relayed", "bytes_down_relayed"),
    "bytes_are": str,
    **every(int, "bytes_up_whole_table", "bytes_down_whole_table"),
    **every(float, "kernel_seconds_per_device", "kernel_seconds_per_round"),
    "rounds_until_everybody_took_part": int,
    "kernel_seconds_until_everybody_took_part": float,
    **every(int, "memory_bytes", "stored_bytes_per_round"),
    "kernel": str,
}
MACHINE: dict[str, Shape] = every(str, "processor", "cores", "python", "numpy", "cryptography", "kernel")
BENCH: dict[str, Shape] = {
    "machine": MACHINE,
    "kernel": {
        "operations": Many(
            {
                **every(str, "backend", "shape"),
                "depth": int,
                "block_ns": float,
                "ns": Named(float),
                **every(float, "tree_blocks", "convert_share"),
            }
        ),
        "threads": Many({"shape": str, "work": str, "speedup": float}, may_be_empty=True),
    },
    "noise": Many({"backend": str, "seconds": float}),
    "sharing": Many({"catalogue": str, **every(float, "secemb_us", "full_us", "blocks_ratio", "ratio")}),
    "catalogues": Many(
        {
            **every(str, "catalogue", "construction"),
            **every(int, "slots", "depth", "upload_bytes", "download_bytes"),
            **every(float, "place_ms", "device_ms", "answer_ms", "add_ms"),
        }
    ),
    "devices": Many(
        {
            **every(str, "catalogue", "model"),
            **every(int, "row_width", "dense_size"),
            "cpu_ms": Named(float),
            **every(
                int, "peak_bytes", "process_bytes", "upload_bytes", "download_bytes", "model_bytes", "sharing_bytes"
            ),
        }
    ),
    "footprint": {
        "import_cpu_seconds": float,
        "imports_torch": bool,
        "device_bytes": int,
        "installed_bytes": Named(int),
    },
    "bars": Many({"name": str, **every(float, "measured", "goal"), **every(bool, "more", "reached")}),
}
LOADTEST: dict[str, Shape] = {
    "machine": MACHINE,
    "runs": Many(
        {
            **every(str, "catalogue", "transport"),
            **every(int, "devices", "sessions", "failed", "bytes_up_per_device", "bytes_down_per_device"),
            **every(float, "joins_a_session", "sessions_per_second", "bare_request_ms", "generator_cpu_ms"),
            **every(every(float, "p50", "p95", "p99"), "keys_ms", "update_ms"),
            "servers": Many(
                {
                    **every(float, "cpu_ms_a_session", "kernel_ms_a_session", "beyond_kernel_ms_a_session"),
                    "beyond_kernel_in_bare_requests": float,
                    "kernel_ms_by_operation": Named(float),
                    **every(float, "kernel_share", "memory_mb", "loop_lag_ms"),
                    **every(float, "seal_to_publish_seconds", "seal_to_publish_in_kernel_times"),
                }
            ),
        }
    ),
}
_MOVED: dict[str, Shape] = {
    **every(Many(int), "once", "first", "later", "messages"),
    "requests": Named(Many(int)),
    "tls": every(Many(int), "kept", "anew"),
}
_TIMED: dict[str, Shape] = {
    **every(every(float, "p50", "p95"), "keys_ms", "update_ms"),
    **every(Many(float), "cpu_ms_a_session", "peer_bytes_a_session"),
}
WIRE: dict[str, Shape] = {
    "machine": MACHINE,
    "bytes": Many({"catalogue": str, "limit": Many(int), **every(_MOVED, "direct", "relayed")}),
    "reads": Many(
        {
            "catalogue": str,
            "milliseconds_between_servers": float,
            **every(_TIMED, "direct", "relayed", "direct, 16 at once", "relayed, 16 at once"),
        },
        may_be_empty=True,
    ),
}

MEASURING: dict[str, Shape] = {
    "plan": PLAN,
    "kernel": {"kernel": str, "instruction_sets": Many(str, may_be_empty=True), "reason": str | None},
    "bench": BENCH,
    "loadtest": LOADTEST,
    "wire": WIRE,
    "vectors": {"directory": str, "files": Many(str)},
}
