"""Which implementation evaluates the point functions here, and why."""

import shutil
import sysconfig

from secemb_shared.dpf._native import instruction_sets, native_available

SLOWDOWN = "10 to 90"  # `make bench` shows it for this machine


def describe() -> str:
    """Return one line for people."""
    if native_available():
        return f"kernel: native ({', '.join(instruction_sets())})"
    return f"kernel: portable, {_reason()}; everything works, about {SLOWDOWN} times slower"


def facts() -> dict[str, object]:
    """Return the same for programs."""
    native = native_available()
    return {
        "kernel": "native" if native else "portable",
        "instruction_sets": list(instruction_sets()) if native else [],
        "reason": None if native else _reason(),
    }


def _reason() -> str:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(compiler) is None:
        return "no C compiler found"
    return "the C kernel was not built or this processor has no AES instructions (build/kernel.log)"
