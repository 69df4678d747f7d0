"""Server 1's relay key as server 0 shows it to devices: asked for now and then, and checked before it is shown."""

import asyncio

from secemb_party.errors import PeerRefusedError, PeerUnavailableError
from secemb_party.party import Clock
from secemb_server0.relay_line import RelayLine
from secemb_shared.errors import MessageError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.relay_key import RelayKey

FRESH_SECONDS = 60.0
AWAY_SECONDS = 3.0  # after a failure, so that not every join waits for a connection that does not come


class AnnouncedKey:
    """The last announcement, and when it was asked for."""

    def __init__(self, task: TaskSpec, line: RelayLine, clock: Clock) -> None:
        self._task, self._line, self._clock = task, line, clock
        self._data, self._ends, self._asked = b"", 0.0, float("-inf")
        self._failed = float("-inf")
        self._asking = asyncio.Lock()

    async def get(self) -> bytes:
        """Return the announcement; while server 1 is away the old one, as long as it is valid."""
        if self._clock() - self._asked < FRESH_SECONDS:
            return self._data
        async with self._asking:
            if self._clock() - self._asked >= FRESH_SECONDS:
                await self._ask()
        return self._data

    def forget(self) -> None:
        """Ask again next time: server 1 does not use this key any more."""
        self._asked = float("-inf")

    async def _ask(self) -> None:
        if self._clock() - self._failed < AWAY_SECONDS:
            raise PeerUnavailableError("server 1 did not answer a moment ago")
        try:
            data = await self._line.relay_key()
        except PeerUnavailableError:
            if not self._data or self._clock() >= self._ends:
                self._failed = self._clock()
                raise
        else:
            self._data, self._ends = data, self._check(data)
        self._asked = self._clock()

    def _check(self, data: bytes) -> float:
        try:
            return RelayKey.read(self._task, data).not_after
        except MessageError:
            raise PeerRefusedError(
                "server 1 has another identity than the task's relay_key; compare `secemb relay-key list` with the task"
            ) from None
