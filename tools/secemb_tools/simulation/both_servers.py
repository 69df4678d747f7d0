"""Both servers of a round in this process: they answer keys, take updates and add their two shares."""

from secemb_party.evaluation import Share
from secemb_party.round import PartyRound, agree
from secemb_party.storage import Model
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec


class BothServers:
    """The two sides of one round; what devices send them is what they would send over a wire."""

    def __init__(self, round_: RoundSpec, model: Model) -> None:
        self._sides = PartyRound(round_, 0, model.rows), PartyRound(round_, 1, model.rows)

    def keys(self, session: DeviceSession) -> tuple[bytes, bytes]:
        """Hand over a session's keys and return what each server answers."""
        first, second = self._sides
        return first.keys(session.session_id, session.keys[0]), second.keys(session.session_id, session.keys[1])

    def update(self, session: DeviceSession, messages: tuple[bytes, bytes]) -> None:
        """Hand over a session's update."""
        for side, message in zip(self._sides, messages, strict=True):
            side.update(session.session_id, message)

    def total(self, sessions: int) -> Share:
        """Return the sum over all sessions; there must be so many."""
        first, second = self._sides
        counted = agree(first, second)
        if len(counted) != sessions:
            raise RuntimeError("a session was lost inside one process; this is a fault of the program")
        return first.share(counted) + second.share(counted)
