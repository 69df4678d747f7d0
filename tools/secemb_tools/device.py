"""A device on the command line: the data it stores between calls, and the rounds it takes part in."""

import csv
import json
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from typing_extensions import TypedDict

from secemb_sdk import BlockingDevice, Contributed, Device, Ended, NotNow, Outcome
from secemb_sdk.context import round_bytes
from secemb_sdk.device import BlockingOpening
from secemb_sdk.exchange import Exchange
from secemb_sdk.home.files import make_folder, write_file
from secemb_sdk.http import BlockingHttpTransport
from secemb_sdk.recommend import find_catalogue
from secemb_sdk.round.join import find_task
from secemb_sdk.steps import drive_blocking
from secemb_shared.catalogue import Catalogue
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import OperationError

_FIX = "write one `item,rating` per line, with row numbers as items, or catalogue ids under the header `id,rating`"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OwnRatings:
    """The owner's ratings in a file: by row, or by the ids of the task's catalogue."""

    values: Mapping[str, float]
    by_id: bool

    def by_row(self, find_catalogue: Callable[[], Catalogue]) -> dict[int, float]:
        """Return the ratings by row; the catalogue is fetched only if needed."""
        row_of = find_catalogue().row_of if self.by_id else int
        return {row_of(item): rating for item, rating in self.values.items()}


def read_own_ratings(path: Path) -> OwnRatings:
    """Return item and rating of each line; a header tells whether items are rows or ids."""
    try:
        return _read(path)
    except (UnicodeDecodeError, csv.Error):
        raise OperationError(f"{path} is not a CSV file in UTF-8; {_FIX}") from None


def _read(path: Path) -> OwnRatings:
    found: dict[str, float] = {}
    by_id = False
    with path.open(encoding="utf-8-sig", newline="") as file:
        for number, row in enumerate(csv.reader(file), start=1):
            if not row or (number == 1 and not row[0].strip().isdigit()):
                by_id = by_id or (bool(row) and row[0].strip().lower() == "id")
                continue
            try:
                item = row[0].strip()
                found[item if by_id else str(int(item))] = float(row[1])
            except (ValueError, IndexError):
                # The line itself is not repeated: it is private.
                raise OperationError(f"{path}, line {number}: not an item and a rating; {_FIX}") from None
    if not found:
        raise OperationError(f"{path} has no ratings; {_FIX}")
    return OwnRatings(values=found, by_id=by_id)


FILE = "command.json"  # readable by its owner only, like everything in a home


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """The task that a device belongs to."""

    servers: tuple[str, str]
    task: str
    token: str | None = field(default=None, repr=False)
    ca: Path | None = None

    def opening(self, home: Path) -> BlockingOpening:
        """Return the SDK's arguments for opening this device; invalid addresses and ids are refused here."""
        return Device.open_blocking(home=home, servers=self.servers, task=self.task, token=self.token, ca=self.ca)


class NewDevice(TypedDict):
    """A new device."""

    home: str
    task_id: str
    task: str
    items: int
    ratings: int
    bytes_per_round: int


def join_task(home: Path, membership: Membership, ratings: OwnRatings | None) -> NewDevice:
    """Create the device and return the cost of a round."""
    if (home / FILE).exists():
        raise OperationError(f"{home} already contains a device; use `secemb device once`, or choose another directory")
    task = _check_task(home, membership, ratings)
    make_folder(home)
    remembered = {
        "servers": list(membership.servers),
        "task": membership.task,
        "token": membership.token,
        "ca": membership.ca and str(membership.ca),
    }
    write_file(home / FILE, json.dumps(remembered).encode())
    return {
        "home": str(home),
        "task_id": membership.task,
        "task": task.name,
        "items": task.items,
        "ratings": 0 if ratings is None else len(ratings.values),
        "bytes_per_round": round_bytes(task),
    }


def _check_task(home: Path, membership: Membership, ratings: OwnRatings | None) -> TaskSpec:
    """Ask both servers for the task; a home created for this is removed if they do not have it."""
    opening = membership.opening(home)
    with ExitStack() as undo, closing(BlockingHttpTransport(opening.addresses, ca=opening.ca)) as transport:
        if not home.exists():
            undo.callback(shutil.rmtree, home, ignore_errors=True)
        parts = opening.open_home()
        with closing(parts.vault):
            task = drive_blocking(find_task(Exchange(parts)), transport)
            if ratings is not None:
                rows = ratings.by_row(lambda: drive_blocking(find_catalogue(parts), transport))
                parts.vault.log(rows.items())
        undo.pop_all()
    return task


def open_device(home: Path) -> BlockingOpening:
    """Return the device in a directory, for use in a `with` statement."""
    try:
        found = json.loads((home / FILE).read_bytes())
        servers = (str(found["servers"][0]), str(found["servers"][1]))
        ca = Path(found["ca"]) if found["ca"] is not None else None
        membership = Membership(servers=servers, task=found["task"], token=found["token"], ca=ca)
    except FileNotFoundError:
        raise OperationError(f"no device found in {home}; create one with `secemb device join`") from None
    except (ValueError, KeyError, TypeError, IndexError):
        raise OperationError(f"{home / FILE} cannot be read; remove it and join again") from None
    return membership.opening(home)


class SettledFacts(TypedDict):
    """The outcome of an earlier round of this device: the version that it made, or why it was aborted."""

    round: int
    published: bool
    version: int | None
    reason: str | None


class ContributedFacts(TypedDict):
    """A contribution: everything in its receipt, which says nothing about the owner's taste."""

    outcome: str
    round: int
    kind: str
    model_version: int
    model_digest: str
    sent: list[int]
    received: list[int]
    slots: int
    truncated: int
    complete: bool
    date: str
    transport: str
    published: bool | None  # not yet known
    version: int | None
    reason: str | None
    trouble: str | None
    settled: list[SettledFacts]


class EndedFacts(TypedDict):
    """The task has ended."""

    outcome: str
    reason: str
    settled: list[SettledFacts]


class PostponedFacts(TypedDict):
    """No contribution this time: why, and when to try again."""

    outcome: str
    reason: str
    seconds: float
    settled: list[SettledFacts]


def describe_outcome(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as plain data: `ContributedFacts`, `PostponedFacts` or `EndedFacts`."""
    names = ("round", "published", "version", "reason")
    settled = [{name: getattr(one, name) for name in names} for one in outcome.settled]
    if isinstance(outcome, Contributed):
        facts = {"outcome": "contributed", **outcome.receipt.as_json(), "trouble": outcome.trouble}
        return facts | {"settled": settled}
    if isinstance(outcome, Ended):
        return {"outcome": "ended", "reason": outcome.reason, "settled": settled}
    return {
        "outcome": "not now" if isinstance(outcome, NotNow) else "dropped",
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "settled": settled,
    }


def describe_fates(outcome: Outcome) -> list[str]:
    """Return the outcomes of earlier rounds learned in a call, in words."""
    return [f"round {one.round}: {one.fate}" for one in outcome.settled]


def has_contributed(outcome: Outcome) -> bool:
    """Tell whether a device has taken part."""
    return isinstance(outcome, Contributed)


def take_part(device: BlockingDevice, *, rounds: int | None, as_json: bool) -> None:
    """Take part in this many rounds, or until the task has ended, and print the outcome of each call."""
    console, done = Console(highlight=False, soft_wrap=True), 0
    while rounds is None or done < rounds:
        outcome = device.contribute()
        facts = describe_outcome(outcome)
        if as_json:
            print(json.dumps(facts), flush=True)
        else:
            console.print(*describe_fates(outcome), _line(facts), sep="\n")
        if isinstance(outcome, Ended):
            return
        if isinstance(outcome, Contributed):
            done += 1
        else:
            time.sleep(outcome.seconds)


def _line(facts: dict[str, Any]) -> str:
    if facts["outcome"] == "ended":
        return f"ended: {facts['reason']}"
    if facts["outcome"] != "contributed":
        return f"{facts['outcome']}: {facts['reason']}; retry in {facts['seconds']:.0f} s"
    moved = sum(facts["sent"]) + sum(facts["received"])
    return f"round {facts['round']} {facts['kind']}: {moved / 1e3:,.0f} kB, model {facts['model_version']}"
