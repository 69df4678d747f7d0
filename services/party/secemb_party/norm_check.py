"""The decision which sessions have proved that their update is short enough, from both servers' messages."""

from collections.abc import Sequence

from secemb_party.errors import PeerRefusedError
from secemb_shared.errors import MessageError
from secemb_shared.norm import NormShape, agree


def messages_of(shape: NormShape, told: bytes, count: int) -> list[bytes]:
    """Return the other server's messages, one for each session of the list that both have."""
    size = shape.message_bytes
    if len(told) != count * size:
        raise PeerRefusedError(
            f"the other server reported on a different number of sessions than the {count} prepared here"
        )
    return [told[at : at + size] for at in range(0, len(told), size)]


def passing(shape: NormShape, sessions: Sequence[bytes], told0: Sequence[bytes], told1: Sequence[bytes]) -> list[bytes]:
    """Return the sessions whose proof both servers' messages confirm, in order."""
    try:
        found = zip(sessions, told0, told1, strict=True)
        return [name for name, first, second in found if agree(shape, first, second)]
    except MessageError:
        raise PeerRefusedError("cannot parse the other server's messages about updates") from None
