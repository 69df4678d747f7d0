"""How much memory this process has had resident at most, as the operating system counts it.

Python's tracemalloc knows what goes through Python's own allocator and NumPy's; what torch allocates it does not see.
The system sees everything, in pages, and exactly to some hundred kilobytes. Linux can begin its count anew at any time.
Elsewhere the count is the highest since the process began: what the imports took for a moment hides what came after
and was smaller, and the growth is a lower bound.
"""

import gc
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_BEGIN_ANEW = "5"  # what sets the highest back to what is resident now; see proc(5)


class HighWater:
    """Counts from the moment it is made."""

    def __init__(self) -> None:
        gc.collect()
        with suppress(OSError):  # no Linux, or one that does not allow it: see above
            _RESET.write_text(_BEGIN_ANEW)
        self._before = highest()

    def growth(self) -> int:
        """Return by how many bytes the process has grown at most since then."""
        return highest() - self._before


def highest() -> int:
    """Return the most bytes that were resident."""
    try:
        found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found is not None:
        return 1024 * int(found[1])
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
