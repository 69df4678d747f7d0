"""A device alone in a process, so that the system counts its memory and nobody else's: python device_process.py.

It is run as a file and imports what a device needs and no more. What to do comes through standard input, the servers
answer there, and standard output has the keys and at last the figures. Each message is its length and its bytes.
"""

import json
import os
import sys
from typing import IO, Any

from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec, TaskSpec
from secemb_tools.bench import models
from secemb_tools.bench.high_water import HighWater, highest
from secemb_tools.bench.taste import Taste

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
    round_, model = RoundSpec.decode(what["round"].encode(), task), models.make(what["model"], what["catalogue"])
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
