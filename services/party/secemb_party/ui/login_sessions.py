"""Login sessions of this process, identified by the hash of a random cookie, for at most eight hours."""

import hashlib
import hmac
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import token_urlsafe

LIFETIME = 8 * 3600.0
MOST_SESSIONS = 64
WRONG_TRIES = 10  # per window, for all callers together, because they look the same behind a proxy
WINDOW = 60.0

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Session:
    """One login; every form must contain its token."""

    name: str  # of the operator token
    changes: bool  # whether its role allows changes
    ends_at: float
    form_token: str = field(repr=False)

    def allows(self, given: str) -> bool:
        """Return whether a form was made for this session."""
        return hmac.compare_digest(given.encode(), self.form_token.encode())


class Sessions:
    """The open sessions."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._open: dict[bytes, Session] = {}

    def open(self, name: str, *, changes: bool) -> str:
        """Open a session and return its cookie; if there are too many, the oldest session ends."""
        cookie = token_urlsafe(32)
        self._open[_name(cookie)] = Session(name, changes, self._clock() + LIFETIME, token_urlsafe(32))
        while len(self._open) > MOST_SESSIONS:
            self._open.pop(next(iter(self._open)))
        return cookie

    def find(self, cookie: str) -> Session | None:
        """Return the session of a cookie, unless it has expired."""
        session = self._open.get(_name(cookie))
        if session is not None and session.ends_at <= self._clock():
            self.close(cookie)
            return None
        return session

    def close(self, cookie: str) -> None:
        """End a session."""
        self._open.pop(_name(cookie), None)


class LoginLimit:
    """Checks a limited number of wrong tokens a minute; after that, callers must wait."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._wrong: deque[float] = deque(maxlen=WRONG_TRIES)

    def seconds_to_wait(self) -> int:
        """Return the seconds until the next token can be checked; 0 if now."""
        if len(self._wrong) < WRONG_TRIES:
            return 0
        return max(0, int(self._wrong[0] + WINDOW - self._clock() + 0.999))

    def count_wrong(self) -> None:
        """Count a wrong token."""
        self._wrong.append(self._clock())


def _name(cookie: str) -> bytes:
    """Return the hash that identifies a session: comparing hashes reveals nothing about a cookie."""
    return hashlib.sha256(cookie.encode()).digest()
