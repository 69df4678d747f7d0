"""Server 1's relay keys: list them, rotate them, and check them from either server."""

import ssl
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import httpx
from typing_extensions import TypedDict

from secemb_party.errors import PeerUnavailableError, SettingsError
from secemb_party.settings import Settings
from secemb_server0.app import peer_client
from secemb_server0.peer import HttpRelayLine
from secemb_server1.app import relay_keys
from secemb_server1.relay_keys import ACTIVE, HeldKey, RelayKeys
from secemb_shared.errors import MessageError, SecEmbError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.relay_key import RelayKey
from secemb_tools.errors import OperationError
from secemb_tools.operate.findings import Finding, fail, ok, warn
from secemb_tools.operate.task_files import read_task

_DAY = 86_400


class RelayKeyRow(TypedDict):
    """The public facts about a key."""

    key_id: str
    state: str
    not_before: str
    not_after: str


def rotate(settings: Settings, *, lead: int, overlap: int, days: int) -> RelayKeyRow:
    """Create the next key and return its public facts."""
    keys, now = _keys(settings), time.time()
    made = keys.rotate(now, lead=lead, overlap=overlap, life=days * _DAY)
    return _shown(made, now)


def list_all(settings: Settings) -> list[RelayKeyRow]:
    """Return id, state and dates of every key."""
    return [_shown(key, time.time()) for key in _keys(settings).held()]


def _keys(settings: Settings) -> RelayKeys:
    if settings.role != 1:
        raise OperationError("only server 1 has relay keys; run this in its directory")
    found = relay_keys(settings, TaskSpec.decode(settings.task.file.read_bytes().strip()))
    if found is None:
        raise OperationError(
            "this task has no relayed transport; create one that has it with secemb task create --server1"
        )
    return found


def _shown(key: HeldKey, now: float) -> RelayKeyRow:
    known = key.announced
    return {
        "key_id": known.key_id.hex(),
        "state": key.state(now),
        "not_before": _date(known.not_before),
        "not_after": _date(known.not_after),
    }


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


_NAME = "relay key"
_PARTS = 6  # fractions of a key's life; the last is late: a running server 1 creates the next key when two are left


async def check_relay(settings: Settings, *, offline: bool) -> AsyncIterator[Finding]:
    """Yield nothing if devices call both servers, or if a call to server 1 would be needed to find out."""
    try:
        task = read_task(settings.task.file)
    except SecEmbError:
        return  # already reported
    if task.relays and settings.role == 1:
        yield _check_own(settings, task)
    elif task.relays and not offline:
        yield await _check_shown(settings, task)


def judge_held(held: Sequence[HeldKey], now: float) -> Finding:
    """Judge the keys that server 1 holds."""
    active = [key.announced for key in held if key.state(now) == ACTIVE]
    if not active:
        return ok(_NAME, "none is active yet; server 1 creates one when the first device asks")
    last = max(active, key=lambda key: key.not_after)
    if not last.has_left(now, _PARTS):
        fix = "start server 1, which creates the next one, or run secemb relay-key rotate"
        return warn(_NAME, f"expires on {_day(last.not_after)}", fix)
    return ok(_NAME, f"valid until {_day(last.not_after)}")


def judge_shown(task: TaskSpec, announcement: bytes, now: float) -> Finding:
    """Judge whether devices will accept the key that server 1 announces."""
    try:
        key = RelayKey.read(task, announcement)
    except MessageError:
        fix = "server 1 needs the identity that the task was created with, in [relay] identity_file"
        return fail(_NAME, "server 1 signs with an identity other than the task's", fix)
    if not key.is_current(now):
        dates = f"{_day(key.not_before)} to {_day(key.not_after)}"
        return fail(_NAME, f"server 1 announces a key for {dates}", "synchronise both clocks with NTP")
    if not key.has_left(now, _PARTS):
        fix = "ask server 1's operator to run secemb relay-key rotate"
        return warn(_NAME, f"server 1's key expires on {_day(key.not_after)}", fix)
    return ok(_NAME, f"server 1 announces a correctly signed key, valid until {_day(key.not_after)}")


def _check_own(settings: Settings, task: TaskSpec) -> Finding:
    try:
        keys = relay_keys(settings, task)
        return judge_held(keys.held() if keys is not None else [], time.time())
    except SettingsError as error:
        return fail(_NAME, str(error), "restore secrets/relay.key and data/relay-keys.json, or create a new task")


async def _check_shown(settings: Settings, task: TaskSpec) -> Finding:
    try:
        async with peer_client(settings) as client:
            announcement = await HttpRelayLine(client).relay_key()
    except (httpx.HTTPError, ssl.SSLError, PeerUnavailableError):
        fix = "see peer; server 1 must be of this version and serve this task"
        return fail(_NAME, "server 1 announces none, or cannot be reached", fix)
    return judge_shown(task, announcement, time.time())


def _day(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"
