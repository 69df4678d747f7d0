"""The signed document by which one task continues another."""

import json
from dataclasses import replace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.unit.sessions import make_task

from secemb_shared.errors import EncodingError, SpecError, SuccessionError
from secemb_shared.messages import TaskSpec
from secemb_shared.messages.succession import CONTINUED, FRESH, Link, Succession

IDENTITIES = tuple(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
OTHERS = tuple(Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (3, 4))
KEYS = [one.public_key().public_bytes_raw().hex() for one in IDENTITIES]
OTHER_KEYS = [one.public_key().public_bytes_raw().hex() for one in OTHERS]
FIRST = make_task(identity0=KEYS[0], relay_key=KEYS[1])
# A successor may have other identities: its own successor is then signed by those.
SECOND = make_task(items=30, identity0=OTHER_KEYS[0], relay_key=OTHER_KEYS[1], predecessor=FIRST.task_id.hex())


def link(before: TaskSpec = FIRST, after: TaskSpec = SECOND, identities: Any = IDENTITIES, **changes: Any) -> Link:
    facts: dict[str, Any] = {
        "predecessor": before.task_id.hex(),
        "successor": after.task_id.hex(),
        "last_version": 7,
        "last_digest": "12" * 32,
        "first_digest": "34" * 32,
        "rows": "56" * 32,
        "budget": CONTINUED,
    }
    named = Succession(**facts | changes)
    return Link(task=after, succession=named, signatures=(named.sign(identities[0]), named.sign(identities[1])))


def test_a_link_signed_by_both_servers_is_accepted_as_it_was_sent() -> None:
    sent = link()
    received = Link.from_json(json.loads(json.dumps(sent.as_json())))
    assert received == sent
    received.check(FIRST)


def test_every_change_of_a_signed_document_is_noticed() -> None:
    good = link()
    changes: dict[str, Any] = {
        "last_version": 8,
        **dict.fromkeys(("last_digest", "first_digest", "rows"), "00" * 32),
        "budget": FRESH,
    }
    for name, value in changes.items():
        named = replace(good.succession, **{name: value})
        with pytest.raises(SuccessionError, match="not signed by the server 0"):
            replace(good, succession=named).check(FIRST)


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [
        (link(identities=(IDENTITIES[0], IDENTITIES[0])), "not signed by the server 1"),
        (link(identities=(IDENTITIES[1], IDENTITIES[0])), "not signed by the server 0"),
        (link(identities=OTHERS), "not signed by the server 0"),
        (link(after=replace(SECOND, predecessor="")), "does not name this one as its predecessor"),
        (link(after=replace(SECOND, predecessor="78" * 32)), "does not name this one as its predecessor"),
        (link(after=replace(SECOND, row_width=6)), "must have the same row_width"),
        (link(after=replace(SECOND, dense_size=4)), "must have the same dense_size"),
        (link(after=replace(SECOND, loss="bpr")), "must have the same loss"),
        (link(predecessor="78" * 32), "about other tasks"),
        (link(successor="78" * 32), "about other tasks"),
        (replace(link(), task=replace(SECOND, seed=1)), "about other tasks"),
    ],
)
def test_a_forged_link_is_refused(wrong: Link, fault: str) -> None:
    with pytest.raises(SuccessionError, match=fault):
        wrong.check(FIRST)


def test_a_link_leads_from_its_predecessor_only() -> None:
    after = make_task(predecessor=SECOND.task_id.hex())
    link(SECOND, after, OTHERS).check(SECOND)
    for before in (FIRST, make_task()):
        with pytest.raises(SuccessionError):
            link(SECOND, after, OTHERS).check(before)


def test_a_task_without_identities_has_no_successor() -> None:
    before = make_task(relay_key=KEYS[1])
    with pytest.raises(SuccessionError, match="does not name the identities"):
        link(before, make_task(predecessor=before.task_id.hex())).check(before)


@pytest.mark.parametrize(
    "wrong",
    [{}, {"signatures": []}, {"signatures": ["00"]}, {"signatures": ["zz", "00"]}, {"task": 1}, {"succession": None}],
)
def test_a_link_of_another_shape_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SuccessionError, match="a task, a succession and two signatures"):
        Link.from_json(link().as_json() | wrong if wrong else {})


@pytest.mark.parametrize(
    "changes",
    [
        {"rows": "AB" * 32},
        {"first_digest": "ab"},
        {"last_digest": 5},
        {"last_version": -1},
        {"last_version": "1"},
        {"budget": ""},
        {"protocol": "secemb/1"},
        {"more": 1},
    ],
)
def test_a_document_is_read_in_one_form_only(changes: dict[str, Any]) -> None:
    good = link().succession.encode()
    assert Succession.decode(good).encode() == good
    changed = json.dumps(json.loads(good) | changes, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(SpecError):
        Succession.decode(changed)
    with pytest.raises(EncodingError):
        Succession.decode(good + b" ")


def test_a_signature_is_for_nothing_else() -> None:
    good = link()
    signed = IDENTITIES[0].sign(good.succession.encode())  # without the domain
    with pytest.raises(SuccessionError):
        replace(good, signatures=(signed, good.signatures[1])).check(FIRST)
