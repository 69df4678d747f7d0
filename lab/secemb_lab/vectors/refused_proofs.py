"""Proofs of uploads to both parties, right ones and wrong ones."""

from collections.abc import Iterator

from secemb_lab.vectors.document import Json
from secemb_lab.vectors.refused_messages import GoodRound, changed
from secemb_shared.holds import hold_of, proof_of
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.spec import SURVEY, TRAIN

_UPLOADS = (("update", TRAIN), ("sum_share", SURVEY))


class GoodProofs:
    """The proofs of the good session's uploads."""

    def __init__(self, good: GoodRound) -> None:
        self.good, self.place = good, good.round.label(good.session_id)
        self.holds = [hold_of(good.messages["keys", party, TRAIN]) for party in (0, 1)]

    def described(self) -> Json:
        """Return what each party has to know."""
        return {"holds": [hold.hex() for hold in self.holds]}

    def prove(self, party: int, upload: bytes, *, hold: bytes | None = None) -> bytes:
        """Return the proof of an upload to a party, under that party's hold unless told otherwise."""
        return proof_of(self.place, self.holds[party] if hold is None else hold, digest(upload))


def accepted(proofs: GoodProofs) -> Iterator[Json]:
    """Yield each upload with its own proof."""
    for name, kind in _UPLOADS:
        for party in (0, 1):
            upload = proofs.good.messages[name, party, kind]
            yield _case(party, kind, upload, proofs.prove(party, upload))


def refused(proofs: GoodProofs) -> Iterator[Json]:
    """Yield each upload with proofs that are not its own."""
    for name, kind in _UPLOADS:
        for party in (0, 1):
            upload = proofs.good.messages[name, party, kind]
            for fault, wrong in _wrong(proofs, party, upload):
                yield {"name": fault, **_case(party, kind, upload, wrong), "error": "ProofError"}


def _wrong(proofs: GoodProofs, party: int, upload: bytes) -> Iterator[tuple[str, bytes]]:
    right, other = proofs.prove(party, upload), proofs.holds[1 - party]
    yield "empty", b""
    yield "cut by a byte", right[:-1]
    yield "a byte too long", right + b"\0"
    yield "first bit changed", changed(right, 0, right[0] ^ 1)
    yield "last bit changed", changed(right, -1, right[-1] ^ 0x80)
    yield "of other bytes", proofs.prove(party, changed(upload, -1, upload[-1] ^ 1))
    yield "under the hold of the other party", proofs.prove(party, upload, hold=other)
    yield "without a hold", proofs.prove(party, upload, hold=b"")


def _case(party: int, kind: str, upload: bytes, proof: bytes) -> Json:
    return {"decoder": "proof", "round_kind": kind, "party": party, "data": upload.hex(), "proof": proof.hex()}
