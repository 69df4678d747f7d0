"""The relayed transport against its vectors: what server 0 takes apart, what server 1 opens, what the device reads."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.vectors.values import Case, raw

from secemb_lab.vectors.relays import encrypt_with
from secemb_shared.dpf import Backend
from secemb_shared.holds import check_upload_mac, dense_mark, hold_of, mask, receipt_of, upload_mac
from secemb_shared.messages import Kind, RoundSpec, TaskSpec, decode_answer
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.relay_key import KEY_ID_BYTES, RelayKey, key_id_of
from secemb_shared.messages.relayed import (
    box_content,
    box_info,
    decode_relayed_answer,
    encode_relayed_answer,
    open_box,
    open_content,
    rebuild,
    relayed_bytes,
    split_relayed,
    step_of,
)


def check_key(case: Case, _backend: Backend) -> None:
    task = TaskSpec.decode(case["task"].encode("ascii"))
    identity = Ed25519PrivateKey.from_private_bytes(raw(case["identity"]))
    assert identity.public_key().public_bytes_raw().hex() == task.relay_key
    private = X25519PrivateKey.from_private_bytes(raw(case["private"]))
    assert private.public_key().public_bytes_raw().hex() == case["public"]
    key = RelayKey.read(task, raw(case["announcement"]))
    assert (key.public.hex(), key.not_before, key.not_after) == (case["public"], case["not_before"], case["not_after"])
    assert key.announce(identity, task.task_id) == raw(case["announcement"])
    assert key.key_id == key_id_of(key.public) == raw(case["key_id"])


def check_session(case: Case, backend: Backend) -> None:
    round_ = RoundSpec.decode(case["round"].encode("ascii"), TaskSpec.decode(case["task"].encode("ascii")))
    session_id = raw(case["session_id"])
    place, holds = round_.label(session_id), [raw(one) for one in case["holds"]]
    keys, upload = [raw(one) for one in case["keys"]], [raw(one) for one in case["upload"]]
    assert [hold_of(one) for one in keys] == holds
    macs = [upload_mac(place, hold, digest(one)) for hold, one in zip(holds, upload, strict=True)]
    assert [mac.hex() for mac in macs] == case["proofs"]
    check_upload_mac(place, holds[0], digest(upload[0]), macs[0])
    _check_message(case, round_, Kind.RELAYED_KEYS, keys, b"")
    _check_message(case, round_, Kind.RELAYED_UPLOAD, upload, macs[1])
    marks = [receipt_of(place, holds[1], digest(one)).hex() for one in (keys[1], upload[1])]
    assert marks == case["receipts"]
    _check_answer(case, round_, backend)


def _check_message(case: Case, round_: RoundSpec, kind: Kind, direct: list[bytes], mac: bytes) -> None:
    found, session_id = case[kind.name.lower()], raw(case["session_id"])
    message, step, place = raw(found["message"]), step_of(round_, kind), round_.label(session_id)
    private = X25519PrivateKey.from_private_bytes(raw(case["private"]))
    split = split_relayed(round_, session_id, kind, message)
    content = open_content(round_, session_id, step, private, split.box)
    assert split.own == direct[0]
    assert rebuild(round_, session_id, step, split.public, content) == (direct[1], mac)
    assert content == raw(found["content"]) == box_content(round_, step, direct[1], mac=mac)
    assert len(message) == relayed_bytes(round_, kind)
    public, info = private.public_key().public_bytes_raw(), raw(found["info"])
    assert info == box_info(place, step)
    assert open_box(private, place, step, split.box[KEY_ID_BYTES:]) == content
    box = encrypt_with(raw(found["ephemeral"]), public, info, content)
    assert split.box == key_id_of(public) + box


def _check_answer(case: Case, round_: RoundSpec, backend: Backend) -> None:
    session_id, hold = raw(case["session_id"]), raw(case["holds"][1])
    place, answers = round_.label(session_id), [raw(one) for one in case["answers"]]
    words = [decode_answer(round_, session_id, party, answers[party]) for party in (0, 1)]
    masked = mask(place, hold, words[1], backend)
    assert masked.astype("<u4").tobytes() == raw(case["masked"])
    mark = dense_mark(place, hold, digest(raw(case["dense"])))
    assert mark.hex() == case["dense_mark"]
    other = raw(case["masked"]) + raw(case["receipts"][0]) + mark
    assert encode_relayed_answer(round_, session_id, answers[0], other) == raw(case["relayed_answer"])
    combined, receipt, confirmed = decode_relayed_answer(round_, session_id, raw(case["relayed_answer"]))
    assert (receipt.hex(), confirmed) == (case["receipts"][0], mark)
    assert (mask(place, hold, combined, backend) == words[0] ^ words[1]).all()
