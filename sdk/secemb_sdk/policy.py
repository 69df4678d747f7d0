"""When a device may take part, and how much a round may cost it."""

from collections.abc import Callable
from dataclasses import dataclass

from secemb_sdk.errors import PolicyError
from secemb_shared.messages import Sizes, TaskSpec

_KEYS_PACE = 0.1  # of the pace
_SMALL_CHANGE = 8192  # bytes of what is no message: the task, the round, the ticket, receipts


def always() -> bool:
    """Allow everything."""
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the app asks of a round. Nothing is sent that `allowed` does not allow at that moment."""

    allowed: Callable[[], bool] = always  # unmetered network? on power? asked before every request, so it must be quick
    seconds: float = 120.0  # one call of `contribute()` ends after this long; what is left goes on at the next
    bytes: int | None = None  # bodies in both directions; a round that needs more is not begun
    # The update leaves so long after the answers to the keys, unless training takes longer: otherwise the time between
    # them would say how many items a device has.
    pace_seconds: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.seconds < float("inf"):
            raise PolicyError("seconds must be a positive number")
        if not 0 <= self.pace_seconds < self.seconds:
            raise PolicyError("pace_seconds must be at least 0 and below seconds, or no round would ever end")

    @property
    def keys_seconds(self) -> float:
        """Return how long after a ticket keys are sent, however many items were to be placed."""
        return _KEYS_PACE * self.pace_seconds

    def check_bytes(self, task: TaskSpec, *, relayed: bool = False) -> None:
        """Refuse a budget that a training round without repeats would overrun."""
        needed = round_bytes(task, relayed=relayed)
        if self.bytes is not None and needed > self.bytes:
            raise PolicyError(f"a round of this task moves {needed:,} bytes; allow that many, or do not take part")


def round_bytes(task: TaskSpec, *, relayed: bool = False) -> int:
    """Return what a training round moves in both directions together, if nothing has to be repeated."""
    sizes = Sizes.of(task)
    messages = sizes.relayed_upload + sizes.relayed_download if relayed else sizes.upload + sizes.download
    return messages + 4 * task.dense_size + _SMALL_CHANGE
