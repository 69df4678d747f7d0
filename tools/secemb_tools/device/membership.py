"""What a device on the command line remembers between two calls: its servers, its task and its token."""

import csv
import json
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secemb_sdk import BlockingDevice, Device
from secemb_sdk.context import round_bytes
from secemb_sdk.device import BlockingOpening
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.files import make_folder, write_file
from secemb_sdk.http import BlockingHttpTransport
from secemb_sdk.round.join import find_task
from secemb_sdk.steps import drive_blocking
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import OperationError

_FIX = "write one `item,rating` a line, items as their rows in the catalogue"


def read_own_ratings(path: Path) -> dict[int, float]:
    """Return item and rating of each line; a first line of names is left out."""
    try:
        return _read(path)
    except (UnicodeDecodeError, csv.Error):
        raise OperationError(f"{path} is no CSV file in UTF-8; save it as one, and {_FIX}") from None


def _read(path: Path) -> dict[int, float]:
    found: dict[int, float] = {}
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row or (number == 1 and not row[0].strip().isdigit()):
                continue
            try:
                found[int(row[0])] = float(row[1])
            except (ValueError, IndexError):
                # The line itself is not repeated: it is what nobody else shall know.
                raise OperationError(f"{path}, line {number}: no item and rating; {_FIX}") from None
    if not found:
        raise OperationError(f"{path} holds no rating; {_FIX}")
    return found


FILE = "command.json"  # readable by its owner alone, as everything in a home is


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Which task a device belongs to."""

    servers: tuple[str, str]
    task: str
    token: str | None = field(default=None, repr=False)

    def opening(self, home: Path) -> BlockingOpening:
        """Return how the SDK opens this device; what cannot be is refused here."""
        return Device.open_blocking(home=home, servers=self.servers, task=self.task, token=self.token)


def join_task(home: Path, membership: Membership, ratings: Mapping[int, float]) -> dict[str, Any]:
    """Make the device and return what a round will cost it."""
    if (home / FILE).exists():
        raise OperationError(f"{home} is a device already; use `secemb device once`, or choose another directory")
    task = _meet(home, membership, ratings)
    make_folder(home)
    remembered = {"servers": list(membership.servers), "task": membership.task, "token": membership.token}
    write_file(home / FILE, json.dumps(remembered).encode())
    return {
        "home": str(home),
        "task_id": membership.task,
        "task": task.name,
        "items": task.items,
        "ratings": len(ratings),
        "bytes_per_round": round_bytes(task),
    }


def _meet(home: Path, membership: Membership, ratings: Mapping[int, float]) -> TaskSpec:
    """Ask both servers for the task; a home that was made for this goes again if they do not show it."""
    opening = membership.opening(home)
    with ExitStack() as undo, closing(BlockingHttpTransport(opening.addresses)) as transport:
        if not home.exists():
            undo.callback(shutil.rmtree, home, ignore_errors=True)
        parts = opening.open_home()
        with closing(parts.vault):
            task = drive_blocking(find_task(Exchange(parts)), transport)
            if ratings:
                parts.vault.log(ratings.items())
        undo.pop_all()
    return task


def open_device(home: Path) -> "OpenDevice":
    """Return the device of a directory, to be used within `with`."""
    try:
        found = json.loads((home / FILE).read_bytes())
        servers = (str(found["servers"][0]), str(found["servers"][1]))
        membership = Membership(servers=servers, task=found["task"], token=found["token"])
    except FileNotFoundError:
        raise OperationError(f"there is no device in {home}; make one with `secemb device join`") from None
    except (ValueError, KeyError, TypeError, IndexError):
        raise OperationError(f"{home / FILE} cannot be read; remove it and join again") from None
    return OpenDevice(membership.opening(home))


class OpenDevice:
    """A device that is open within `with`."""

    def __init__(self, opening: BlockingOpening) -> None:
        self._opening = opening

    def __enter__(self) -> BlockingDevice:
        return self._opening.__enter__()

    def __exit__(self, *raised: object) -> None:
        self._opening.__exit__(*raised)
