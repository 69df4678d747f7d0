"""Server 1's relay keys as its operator sees and changes them, and the checks of them from either server."""

import ssl
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import httpx

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
from secemb_tools.operate.finding import Finding, fail, ok, warn
from secemb_tools.operate.tasks import read_task

_DAY = 86_400


def rotate(settings: Settings, *, lead: int, overlap: int, days: int) -> dict[str, object]:
    """Make the next key and return what may be shown of it."""
    keys, now = _keys(settings), time.time()
    made = keys.rotate(now, lead=lead, overlap=overlap, life=days * _DAY)
    return _shown(made, now)


def list_all(settings: Settings) -> list[dict[str, object]]:
    """Return key id, state, beginning and end of every key."""
    return [_shown(key, time.time()) for key in _keys(settings).held()]


def _keys(settings: Settings) -> RelayKeys:
    if settings.role != 1:
        raise OperationError("relay keys are server 1's; run this in its directory")
    found = relay_keys(settings, TaskSpec.decode(settings.task.file.read_bytes().strip()))
    if found is None:
        raise OperationError("this task is not relayed; secemb task create --server1 makes one that is")
    return found


def _shown(key: HeldKey, now: float) -> dict[str, object]:
    known = key.announced
    times = {"not_before": _date(known.not_before), "not_after": _date(known.not_after)}
    return {"key_id": known.key_id.hex(), "state": key.state(now), **times}


def _date(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


_NAME = "relay key"
_PARTS = 6  # of a key's life, of which the last is late: a server 1 that runs makes the next key when two are left


async def check_relay(settings: Settings, *, offline: bool) -> AsyncIterator[Finding]:
    """Yield nothing where devices must talk to both servers, or where it takes the line to server 1 to find out."""
    try:
        task = read_task(settings.task.file)
    except SecEmbError:
        return  # said already
    if task.relays and settings.role == 1:
        yield _check_own(settings, task)
    elif task.relays and not offline:
        yield await _check_shown(settings, task)


def judge_held(held: Sequence[HeldKey], now: float) -> Finding:
    """Say how it stands with server 1's own keys."""
    active = [key.announced for key in held if key.state(now) == ACTIVE]
    if not active:
        return ok(_NAME, "none is active; server 1 makes one when the first device comes")
    last = max(active, key=lambda key: key.not_after)
    if not last.has_left(now, _PARTS):
        fix = "start server 1, which makes the next one; or secemb relay-key rotate"
        return warn(_NAME, f"ends on {_day(last.not_after)}", fix)
    return ok(_NAME, f"valid until {_day(last.not_after)}")


def judge_shown(task: TaskSpec, announcement: bytes, now: float) -> Finding:
    """Say whether devices will seal to what server 1 announces."""
    try:
        key = RelayKey.read(task, announcement)
    except MessageError:
        fix = "server 1 needs the identity that the task was created with, in [relay] identity_file"
        return fail(_NAME, "server 1 signs with another identity than the task names", fix)
    if not key.is_current(now):
        dates = f"{_day(key.not_before)} to {_day(key.not_after)}"
        return fail(_NAME, f"server 1 announces a key for {dates}", "let both machines follow NTP")
    if not key.has_left(now, _PARTS):
        fix = "let server 1's operator run secemb relay-key rotate"
        return warn(_NAME, f"server 1's key ends on {_day(key.not_after)}", fix)
    return ok(_NAME, f"server 1 announces one, signed as the task says, valid until {_day(key.not_after)}")


def _check_own(settings: Settings, task: TaskSpec) -> Finding:
    try:
        keys = relay_keys(settings, task)
        return judge_held(keys.held() if keys is not None else [], time.time())
    except SettingsError as error:
        return fail(_NAME, str(error), "restore secrets/relay.key and data/relay-keys.json, or create the task anew")


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
