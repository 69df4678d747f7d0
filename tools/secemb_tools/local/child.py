"""`secemb serve` as a child process that ends with its parent, even if the parent is killed."""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Ask the system for a SIGTERM when the parent has ended; only Linux can do this."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent has already ended
        raise SystemExit(1)


def main(folder: str, parent: str) -> None:
    """Serve until a signal, or until the parent has ended."""
    end_with_parent(int(parent))
    from secemb_shared.errors import SecEmbError
    from secemb_tools.operate.settings import serve, settings_at

    try:
        serve(settings_at(Path(folder)))
    except (SecEmbError, OSError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
