"""How much memory this process has had resident at most, as the operating system counts it.

Python's tracemalloc knows what goes through Python's own allocator and NumPy's; what torch allocates it does not see.
The system sees everything, in pages, and exactly to some hundred kilobytes. Linux can begin its count anew at any time.
Elsewhere the count is the highest since the process began: what the imports took for a moment hides what came after
and was smaller, and the growth is a lower bound.
"""

import gc
import json
import os
import re
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from secemb_lab.bench import device_models
from secemb_lab.bench.device_models import Taste
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec, TaskSpec

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


_LENGTH_BYTES = 4


def put(stream: IO[bytes], message: bytes) -> None:
    """Write one message."""
    stream.write(len(message).to_bytes(_LENGTH_BYTES, "little") + message)
    stream.flush()


def take(stream: IO[bytes]) -> bytes:
    """Read one message; fewer bytes than it should have if the other side has ended."""
    return stream.read(int.from_bytes(stream.read(_LENGTH_BYTES), "little"))


def go_through_a_round(source: IO[bytes], target: IO[bytes]) -> dict[str, int]:
    """Do everything that a device does in a round; return the memory that it took."""
    what: dict[str, Any] = json.loads(take(source))
    task = TaskSpec.decode(what["task"].encode())
    round_, model = RoundSpec.decode(what["round"].encode(), task), device_models.make(what["model"], what["catalogue"])
    taste = Taste.draw(round_, model)
    memory = HighWater()
    session = DeviceSession(round_, taste.items)
    for message in (session.session_id, *session.keys):
        put(target, message)
    items, rows = session.read((take(source), take(source)))
    taste.write(session, items, taste.train(items, rows))
    return {"peak_bytes": memory.growth(), "process_bytes": highest()}


def main() -> None:
    """Go through one round."""
    # Whatever else prints does not get in between.
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    put(target, json.dumps(go_through_a_round(sys.stdin.buffer, target)).encode())


if __name__ == "__main__":
    main()
