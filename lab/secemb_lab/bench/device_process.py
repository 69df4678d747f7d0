"""A device in its own process, and the peak of its resident memory as the operating system counts it.

Python's tracemalloc sees the allocations of Python and NumPy, not those of torch. The system sees everything, in pages,
to within some hundred kilobytes. Linux can reset its peak at any time. Elsewhere the peak is that of the whole process:
a higher one during the imports hides a later, smaller one, and the growth is a lower bound.
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
from secemb_lab.bench.device_models import Workload
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec, TaskSpec

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # resets the peak to the current resident size; see proc(5)


class HighWater:
    """Measures the peak since its creation."""

    def __init__(self) -> None:
        gc.collect()
        with suppress(OSError):  # not Linux, or not allowed: see above
            _RESET.write_text(_RESET_PEAK)
        self._before = highest()

    def growth(self) -> int:
        """Return the largest growth in bytes since then."""
        return highest() - self._before


def highest() -> int:
    """Return the peak of the resident memory in bytes."""
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
    """Read one message; truncated if the other side has ended."""
    return stream.read(int.from_bytes(stream.read(_LENGTH_BYTES), "little"))


def go_through_a_round(source: IO[bytes], target: IO[bytes]) -> dict[str, int]:
    """Run a whole round of a device; return its memory use."""
    what: dict[str, Any] = json.loads(take(source))
    task = TaskSpec.decode(what["task"].encode())
    round_, model = RoundSpec.decode(what["round"].encode(), task), device_models.make(what["model"], what["catalogue"])
    workload = Workload.draw(round_, model)
    memory = HighWater()
    session = DeviceSession(round_, workload.items)
    for message in (session.session_id, *session.keys):
        put(target, message)
    items, rows = session.read((take(source), take(source)))
    workload.write(session, items, workload.train(items, rows))
    return {"peak_bytes": memory.growth(), "process_bytes": highest()}


def main() -> None:
    """Go through one round."""
    # Other output must not mix with the messages.
    target = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    put(target, json.dumps(go_through_a_round(sys.stdin.buffer, target)).encode())


if __name__ == "__main__":
    main()
