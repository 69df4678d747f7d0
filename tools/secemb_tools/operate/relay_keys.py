"""Server 1's relay keys as its operator sees and changes them."""

import time
from datetime import UTC, datetime

from secemb_party.settings import Settings
from secemb_server1.app import relay_keys
from secemb_server1.relay_keys import HeldKey, RelayKeys
from secemb_shared.messages import TaskSpec
from secemb_tools.operate.refusal import OperationError

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
