"""One party's part in one round, without I/O: it answers keys and adds updates up.

Both servers run this code; they differ only in `party` and in who reconstructs.
"""

from dataclasses import dataclass

import numpy as np
from secemb_shared import reading, secure_sum, writing
from secemb_shared.dpf import Backend, HeldKeys, RingArray, default_backend
from secemb_shared.errors import SessionError, SpecError
from secemb_shared.labels import Purpose
from secemb_shared.messages import RoundSpec, decode_keys, decode_update, encode_answer
from secemb_shared.messages.codec import EXPLICIT_PARTY, master_seed

_BATCH = 32  # sessions evaluated together: enough to keep a bin's sums in cache, few enough to bound memory


@dataclass(frozen=True, slots=True, repr=False)
class Share:
    """One party's share of the sum over a set of sessions."""

    rows: RingArray  # (items, width)
    dense: RingArray  # (dense size,)


@dataclass(slots=True, repr=False)
class _Session:
    request: bytes
    answer: bytes
    held: HeldKeys
    dense_key: bytes
    update: bytes | None = None
    words: RingArray | None = None
    dense: RingArray | None = None


class PartyRound:
    """What one party knows of one round: the model, and for each session its keys and its update."""

    def __init__(self, round_: RoundSpec, party: int, table: reading.Rows, *, backend: Backend | None = None) -> None:
        self.round, self.party = round_, party
        self._backend = backend or default_backend()
        self._tagged = reading.tag_rows(round_, table, self._backend)
        self._sessions: dict[bytes, _Session] = {}
        self._opened: list[bytes] | None = None

    def keys(self, session_id: bytes, data: bytes) -> bytes:
        """Take a session's KEYS message and return its ANSWER; the same bytes get the same answer, others none."""
        known = self._sessions.get(session_id)
        if known is None:
            known = self._sessions[session_id] = self._answered(session_id, data)
        if known.request != data:
            raise SessionError("this session sent other keys before; start a new session")
        return known.answer

    def update(self, session_id: bytes, data: bytes) -> None:
        """Take a session's UPDATE message; the same bytes may come again, others may not."""
        session = self._known(session_id)
        if session.update is None:
            session.words, session.dense = decode_update(self.round, session_id, self.party, data)
            session.update = data
        if session.update != data:
            raise SessionError("this session sent another update before; a path is used once")

    def complete(self) -> list[bytes]:
        """Return the sessions whose update is here, sorted: what the two parties agree on before they add."""
        return sorted(name for name, session in self._sessions.items() if session.words is not None)

    def share(self, session_ids: list[bytes]) -> Share:
        """Return this party's share of the sum over exactly these sessions; a round opens for one list only."""
        task = self.round.task
        if sorted(set(session_ids)) != session_ids:
            raise SessionError("the list of sessions must be sorted and name each once")
        if not task.min_cohort <= len(session_ids) <= task.cohort:
            raise SpecError("fewer sessions than the minimum cohort or more than the cohort: this sum stays closed")
        if self._opened not in (None, session_ids):
            raise SessionError("this round was opened for another list of sessions")
        sessions = [self._known(name) for name in session_ids]
        share = Share(writing.empty_sums(self.round), np.zeros(task.dense_size, dtype=task.ring.dtype))
        for first in range(0, len(sessions), _BATCH):
            self._add(sessions[first : first + _BATCH], share)
        self._opened = list(session_ids)
        return share

    def _known(self, session_id: bytes) -> _Session:
        if session_id not in self._sessions:
            raise SessionError("no keys of this session are here")
        return self._sessions[session_id]

    def _answered(self, session_id: bytes, data: bytes) -> _Session:
        held = decode_keys(self.round, session_id, self.party, data, self._backend)
        words = reading.answer(self.round, held, self._tagged, self._backend)
        dense_key = self.round.label(session_id).key(Purpose.DENSE_SHARE, master_seed(data))
        return _Session(data, encode_answer(self.round, session_id, self.party, words[0]), held, dense_key)

    def _add(self, sessions: list[_Session], share: Share) -> None:
        words = [session.words for session in sessions if session.words is not None]
        if len(words) != len(sessions):
            raise SessionError("a session on the list has no update")
        held = HeldKeys.together([session.held for session in sessions])
        writing.accumulate(self.round, held, np.stack(words), share.rows, self._backend)
        for session in sessions:
            if self.party == EXPLICIT_PARTY and session.dense is not None:
                np.add(share.dense, session.dense, out=share.dense)
            else:
                secure_sum.add_seeded(session.dense_key, share.dense, self._backend)
