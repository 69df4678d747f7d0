"""A server 0 that does something to what it passes on, and what both servers and devices make of it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from tests.devices.phone import Phone, until_contributed
from tests.simulation.pair import IDENTITY, RELAYED, Pair

from secemb_party.relay_frames import Frame, Reply, ReplyReader, read_frames
from secemb_server1.relay_keys import RelayKeys
from secemb_shared.messages import Kind, RoundSpec
from secemb_shared.messages.relay_key import RelayKey

# For devices that try in vain for a while.
LONG: dict[str, Any] = RELAYED | {"join_seconds": 300, "upload_seconds": 900}
Change = Callable[[Frame], Frame]
Thing = TypeVar("Thing")


def each(change: Change) -> Callable[[bytes], bytes]:
    """Return what a relay does that changes every frame."""
    return lambda data: b"".join(change(frame).encode() for frame in read_frames(data))


def read_replies(data: bytes) -> list[Reply]:
    """Return what server 1 says to the frames of one request."""
    return list(ReplyReader(len(data)).feed(data))


def noting(seen: list[Thing]) -> Callable[[Thing], Thing]:
    """Return what changes nothing and remembers everything."""

    def note(thing: Thing) -> Thing:
        seen.append(thing)
        return thing

    return note


def only(step: Kind, change: Change) -> Change:
    return lambda frame: change(frame) if frame.step is step else frame


def flip(frame: Frame, at: int) -> Frame:
    rest = bytearray(frame.rest)
    rest[at] ^= 1
    return replace(frame, rest=bytes(rest))


def refusals(pair: Pair, party: int) -> dict[str, int]:
    return pair.parties[party].metrics.refusals()


async def comes_back(pair: Pair, phones: list[Phone], *, counted: list[Phone] | None = None) -> None:
    """Be honest from now on: everybody contributes, and the sum is that of all of them, or of those to be counted."""
    pair.line.tamper = pair.line.tamper_reply = None
    for phone in phones:
        phone.alter = lambda _request, answer: answer
    for outcome in await until_contributed(phones):
        assert outcome.trouble is None
    await check_sum(pair, counted or phones)


async def check_sum(pair: Pair, phones: list[Phone]) -> None:
    """End the round; its sum must be exactly that of these devices."""
    await pair.finish()
    for phone in phones:
        phone.seen.check()
    models = [party.models.load(party.models.versions()[-1]) for party in pair.parties.values()]
    assert np.array_equal(models[0].rows, models[1].rows)
    mean = sum(phone.model.mark for phone in phones) / len(phones)
    assert models[0].rows[0, 0] == -mean


def round_of(pair: Pair, **changes: object) -> RoundSpec:
    digest = pair.parties[0].models.load(0).digest
    fields: dict[str, object] = {"task": pair.task, "number": 0, "model_version": 0, "model_digest": digest}
    return RoundSpec(**(fields | changes))  # type: ignore[arg-type]


def relay_keys(pair: Pair) -> RelayKeys:
    """Return server 1's keys as the command line sees them."""
    return RelayKeys(pair.folder / "server1" / "relay-keys.json", IDENTITY, pair.task.task_id)


def newest_key(pair: Pair) -> RelayKey:
    """Return the last key that server 1 has made."""
    return relay_keys(pair).held()[-1].announced
