"""Server 1's relay key as server 0 shows it: a server 1 that is away is not asked by every device that joins."""

from collections.abc import AsyncIterator, Sequence

import pytest
from tests.unit.test_relay_keys import IDENTITY, TASK

from secemb_party.errors import PeerUnavailableError
from secemb_party.relay_frames import Reply
from secemb_server0.join import AWAY_SECONDS, AnnouncedKey
from secemb_shared.messages.relay_key import RelayKey

pytestmark = pytest.mark.asyncio
ANNOUNCED = RelayKey(public=bytes(32), not_before=0, not_after=10_000).announce(IDENTITY, TASK.task_id)


class Absent:
    """A server 1 that is away at first."""

    def __init__(self) -> None:
        self.asked, self.away, self.now = 0, True, 1000.0

    async def relay_key(self) -> bytes:
        self.asked += 1
        if self.away:
            raise PeerUnavailableError("away")
        return ANNOUNCED

    def pass_on(self, frames: Sequence[bytes], *, most: int) -> AsyncIterator[Reply]:
        raise NotImplementedError


async def test_a_failure_is_remembered_for_a_moment() -> None:
    line = Absent()
    key = AnnouncedKey(TASK, line, lambda: line.now)
    for _ in range(5):
        with pytest.raises(PeerUnavailableError):
            await key.get()
    assert line.asked == 1
    line.away = False
    line.now += AWAY_SECONDS
    assert await key.get() == ANNOUNCED
    assert line.asked == 2
