"""What a device of a load test sends: a message to each server, or one to server 0 with the other sealed in it."""

from dataclasses import dataclass

from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import Kind
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import box_content, encode_relayed


@dataclass(frozen=True, slots=True, repr=False)
class Sending:
    """One message of a device, as HTTP carries it."""

    server: int
    name: str  # the last part of its address
    body: bytes
    proof: bytes = b""


def keys_of(session: DeviceSession, relay: RelayKey | None) -> list[Sending]:
    """Return the session's keys; sealed to server 1's key, if there is one."""
    if relay is None:
        return [Sending(server, "keys", body) for server, body in enumerate(session.keys)]
    content = box_content(session.round, Kind.KEYS, session.keys[1])
    return [_relayed(session, "relayed-keys", Kind.RELAYED_KEYS, session.keys[0], content, relay)]


def update_of(session: DeviceSession, answers: list[bytes], relay: RelayKey | None) -> list[Sending]:
    """Read the rows, and return an update that changes nothing."""
    if relay is None:
        session.read((answers[0], answers[1]))
        messages, proofs = session.write_nothing(), session.marks.proofs
        return [Sending(server, "update", messages[server], proofs[server]) for server in (0, 1)]
    session.read_relayed(answers[0])
    own, other = session.write_nothing()
    proofs = session.marks.proofs
    content = box_content(session.round, Kind.UPDATE, other, proof=proofs[1])
    return [_relayed(session, "relayed-update", Kind.RELAYED_UPLOAD, own, content, relay, proofs[0])]


def _relayed(
    session: DeviceSession, name: str, kind: Kind, own: bytes, content: bytes, relay: RelayKey, proof: bytes = b""
) -> Sending:
    return Sending(0, name, encode_relayed(session.round, session.session_id, kind, own, content, relay), proof)
