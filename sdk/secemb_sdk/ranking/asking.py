"""Requests that are sent until they are answered, for a while.

Whoever has a policy of their own (a deadline, a budget, a network that may not be used) gives another `Ask` to the
steps of this package; this is the one for those who have none.
"""

from typing import Protocol

from secemb_sdk.effects import Answer, Request, Steps, pause, send
from secemb_sdk.errors import UnavailableError
from secemb_sdk.problems import retry_after
from secemb_shared.randomness import RandomBytes, secure_bytes

_TRIES = 5
_FIRST_PAUSE = 0.5
_LATER = {408, 425, 429, 500, 502, 503, 504}


class Ask(Protocol):
    """Sends requests at the same time and returns one answer for each, of whatever status."""

    def __call__(self, *requests: Request) -> Steps[list[Answer]]:
        """Return the answers in the order of the requests."""


def ask_steps(*requests: Request) -> Steps[list[Answer]]:
    """Send requests, and those that were lost or came too early again: the same bytes, after a growing pause."""
    answered: dict[int, Answer] = {}
    told = 0.0  # how long a server wants us to wait
    for attempt in range(_TRIES):
        if attempt:
            yield from pause(_how_long(attempt, told))
        missing = [at for at in range(len(requests)) if at not in answered]
        found = yield from send(*(requests[at] for at in missing))
        for at, answer in zip(missing, found, strict=True):
            if isinstance(answer, Answer) and answer.status in _LATER:
                told = max(told, retry_after(answer) or 0.0)
            elif isinstance(answer, Answer):
                answered[at] = answer
        if len(answered) == len(requests):
            return [answered[at] for at in range(len(requests))]
    raise UnavailableError("a server does not answer, or not now; try again later", seconds=told or None)


def _how_long(attempt: int, told: float, random_bytes: RandomBytes = secure_bytes) -> float:
    """Return the next pause: doubling, with a random part so that a fleet does not come back all at once."""
    spread = 0.5 + int.from_bytes(random_bytes(4), "little") / 2**33
    return max(told, _FIRST_PAUSE * 2.0**attempt * spread)
