"""MACs of uploads to both parties, right ones and wrong ones."""

from collections.abc import Iterator

from secemb_lab.vectors.document import Json
from secemb_lab.vectors.refused_messages import GoodRound, changed
from secemb_shared.holds import hold_of, upload_mac
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.spec import SURVEY, TRAIN

_UPLOADS = (("update", TRAIN), ("sum_share", SURVEY))


class GoodMacs:
    """The MACs of the good session's uploads."""

    def __init__(self, good: GoodRound) -> None:
        self.good, self.place = good, good.round.label(good.session_id)
        self.holds = [hold_of(good.messages["keys", party, TRAIN]) for party in (0, 1)]

    def described(self) -> Json:
        """Return the inputs of each party."""
        return {"holds": [hold.hex() for hold in self.holds]}

    def prove(self, party: int, upload: bytes, *, hold: bytes | None = None) -> bytes:
        """Return the MAC of an upload to a party, under that party's hold unless told otherwise."""
        return upload_mac(self.place, self.holds[party] if hold is None else hold, digest(upload))


def accepted(macs: GoodMacs) -> Iterator[Json]:
    """Yield each upload with its own MAC."""
    for name, kind in _UPLOADS:
        for party in (0, 1):
            upload = macs.good.messages[name, party, kind]
            yield _case(party, kind, upload, macs.prove(party, upload))


def refused(macs: GoodMacs) -> Iterator[Json]:
    """Yield each upload with MACs that are not its own."""
    for name, kind in _UPLOADS:
        for party in (0, 1):
            upload = macs.good.messages[name, party, kind]
            for fault, wrong in _wrong(macs, party, upload):
                yield {"name": fault, **_case(party, kind, upload, wrong), "error": "MacError"}


def _wrong(macs: GoodMacs, party: int, upload: bytes) -> Iterator[tuple[str, bytes]]:
    right, other = macs.prove(party, upload), macs.holds[1 - party]
    yield "empty", b""
    yield "cut by a byte", right[:-1]
    yield "a byte too long", right + b"\0"
    yield "first bit changed", changed(right, 0, right[0] ^ 1)
    yield "last bit changed", changed(right, -1, right[-1] ^ 0x80)
    yield "of other bytes", macs.prove(party, changed(upload, -1, upload[-1] ^ 1))
    yield "under the hold of the other party", macs.prove(party, upload, hold=other)
    yield "without a hold", macs.prove(party, upload, hold=b"")


def _case(party: int, kind: str, upload: bytes, mac: bytes) -> Json:
    return {"decoder": "proof", "round_kind": kind, "party": party, "data": upload.hex(), "proof": mac.hex()}
