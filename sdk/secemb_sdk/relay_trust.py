"""Which key a device seals to: one that the task's server 1 has signed, in its time, never an older one than before.

What is sealed to a key cannot be called back. So it is not enough that server 1 refuses boxes for a key it has given
up: who has got hold of that key's private half reads the box all the same. The device looks at the clock itself.
"""

from base64 import urlsafe_b64decode

from secemb_sdk.detections import Misconduct
from secemb_sdk.effects import Request, Steps, work
from secemb_sdk.errors import PinError, UnavailableError
from secemb_sdk.exchange import Exchange
from secemb_sdk.parts import Parts
from secemb_shared.errors import MessageError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.relay_key import RelayKey

_CLOCK_SLACK = 86_400.0  # seconds that a device's clock may be wrong by


def trust_key(task: TaskSpec, announcement: bytes) -> RelayKey:
    """Return the key in an announcement, or raise unless server 1 has signed it."""
    try:
        return RelayKey.read(task, announcement)
    except MessageError:
        raise PinError(
            "server 0 shows a relay key that the task's server 1 has not signed; nothing was sealed to it",
            noticed=Misconduct.RELAY_KEY,
        ) from None


def is_current(parts: Parts, key: RelayKey) -> bool:
    """Tell whether it is the time of a key, as far as this device knows."""
    return key.is_current(parts.wall_clock(), slack=_CLOCK_SLACK)


def expect_key(parts: Parts, exchange: Exchange, task: TaskSpec) -> Steps[None]:
    """Raise unless there is a key that this device can seal to: who takes a place in a round must be able to upload.

    By the key that was seen last; server 0 is asked only where that will not do.
    """
    seen = yield from work(parts.vault.relay_key)
    if seen is None or not is_current(parts, seen):
        yield from fetch_announcement(parts, exchange, task)


def take_key(parts: Parts, task: TaskSpec, shown: str) -> Steps[bytes]:
    """Return an announcement as it came with a ticket, checked."""
    try:
        announcement = urlsafe_b64decode(shown.encode("ascii"))
    except ValueError:
        announcement = b""
    yield from _remember(parts, trust_key(task, announcement))
    return announcement


def fetch_announcement(parts: Parts, exchange: Exchange, task: TaskSpec) -> Steps[bytes]:
    """Ask server 0 for the announcement of the key that server 1 uses now."""
    path = f"/v1/tasks/{task.task_id.hex()}/relay"
    (answer,) = yield from exchange.ask(Request(server=0, method="GET", path=path, most=1 << 16))
    yield from _remember(parts, trust_key(task, answer.body))
    return answer.body


def fetch_key(parts: Parts, exchange: Exchange, task: TaskSpec) -> Steps[RelayKey]:
    """Ask server 0 for the key that server 1 uses now."""
    return trust_key(task, (yield from fetch_announcement(parts, exchange, task)))


def _remember(parts: Parts, key: RelayKey) -> Steps[None]:
    """Refuse a key whose time it is not, or from before the newest that was seen: it may have been given up."""
    if not is_current(parts, key):
        raise UnavailableError("server 0 shows a relay key of server 1 whose time it is not; check this device's clock")
    if not (yield from work(lambda: parts.vault.see_relay_key(key))):
        raise UnavailableError(
            "server 0 shows an older relay key of server 1 than it did before", noticed=Misconduct.RELAY_KEY
        )
