"""Devices and both servers of one round, as bytes."""

import numpy as np
from tests.unit.sessions import (
    Floats,
    bit_table,
    ids,
    make_round,
    make_task,
    seeded,
)

from secemb_lab.party_round import PartyRound
from secemb_sdk.round.session import DeviceSession
from secemb_shared.messages import RoundSpec

ROUND = make_round(make_task())


ITEMS = ids(2, 21, 7)


UPDATES = np.array([[1.0] * 5, [2.0] * 5, [-3.5] * 5])


def make_session(round_: RoundSpec = ROUND, seed: int = 0) -> DeviceSession:
    return DeviceSession(round_, ITEMS, random_bytes=seeded(seed))


def ask(session: DeviceSession, parties: list[PartyRound]) -> tuple[bytes, bytes]:
    answers = [party.keys(session.session_id, data) for party, data in zip(parties, session.keys, strict=True)]
    return answers[0], answers[1]


def make_parties(round_: RoundSpec = ROUND) -> list[PartyRound]:
    return [PartyRound(round_, party, bit_table(round_.task)) for party in (0, 1)]


def total(parties: list[PartyRound], names: list[bytes]) -> Floats:
    shares = [party.share(sorted(names)) for party in parties]
    return ROUND.task.ring.decode(shares[0].rows + shares[1].rows)
