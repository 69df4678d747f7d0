"""Which implementation of the kernel is in use here, and why."""

import shutil
import sysconfig

from typing_extensions import TypedDict

from secemb_shared.kernel import instruction_sets, native_available

SLOWDOWN = "10 to 90"  # `make bench` shows it for this machine


class KernelFacts(TypedDict):
    """The implementation in use."""

    kernel: str  # native or portable
    instruction_sets: list[str]
    reason: str | None  # why it is not the native one


def describe() -> str:
    """Return the description in one line."""
    if native_available():
        return f"kernel: native ({', '.join(instruction_sets())})"
    return f"kernel: portable, {_reason()}; everything works, but about {SLOWDOWN} times slower"


def facts() -> KernelFacts:
    """Return the description as plain data."""
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
    return "the C kernel was not built, or this processor has no AES instructions (see build/kernel.log)"
