"""The entry point of `secemb` and `python -m secemb_tools`: the command line, or a hint at a missing extra."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_INTERRUPTED = 130  # the exit code of shells after Ctrl-C
_EXTRAS = {"torch": "train", "dp_accounting": "dp", "asyncpg": "postgres"}
_USUAL = "tools,server"  # the dependencies of everything else


def main() -> None:
    """Run the command line."""
    try:
        with _ended_by_ctrl_c():
            from secemb_tools.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing.startswith("secemb") or not missing:
            raise
        extra = _EXTRAS.get(missing, _USUAL)
        sys.exit(f"this needs {missing}, which is not installed: pip install 'secemb[{extra}]'")


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Let Ctrl-C end the process at once: a traceback of what was being loaded would help nobody."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:  # ignored, as in the background of a script
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: os._exit(_INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


if __name__ == "__main__":
    main()
