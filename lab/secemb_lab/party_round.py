"""One party's part in one round in memory: for demonstrations, tests and simulation, where no ledger is needed."""

from dataclasses import dataclass

from secemb_party.evaluation import Evaluation, KeysMessage, SessionBodies, Share, check_update
from secemb_shared.dpf import CHECK_KEY_BYTES, Backend
from secemb_shared.errors import SessionError, SpecError
from secemb_shared.messages import RoundSpec
from secemb_shared.row_words import Rows


@dataclass(slots=True, repr=False)
class _Session:
    keys: bytes
    answer: bytes
    alike: bytes  # the fingerprint that both parties must compute from the keys
    update: bytes | None = None


class PartyRound:
    """One party's state in one round: the model, and for each session its keys and its update."""

    def __init__(
        self,
        round_: RoundSpec,
        party: int,
        table: Rows,
        *,
        backend: Backend | None = None,
        check_key: bytes = bytes(CHECK_KEY_BYTES),
    ) -> None:
        self.round, self.party = round_, party
        self._evaluation = Evaluation.prepare(round_, party, table, backend, check_key=check_key)
        self._sessions: dict[bytes, _Session] = {}
        self._opened: list[bytes] | None = None

    def keys(self, session_id: bytes, data: bytes) -> bytes:
        """Accept a session's KEYS message and return its ANSWER; the same bytes get the same answer, others none."""
        known = self._sessions.get(session_id)
        if known is None:
            self._check_open()
            [(answer, alike)] = self._evaluation.accept([KeysMessage(session_id, data)])
            known = self._sessions[session_id] = _Session(data, answer, alike)
        if known.keys != data:
            raise SessionError("this session sent other keys before; start a new session")
        return known.answer

    def update(self, session_id: bytes, data: bytes) -> None:
        """Accept a session's upload; the same bytes may be sent again, different ones are refused."""
        session = self._known(session_id)
        if session.update is None:
            self._check_open()
            check_update(self.round, self.party, session_id, data)
            session.update = data
        if session.update != data:
            raise SessionError("this session sent another update before; a path is used once")

    def complete(self) -> list[bytes]:
        """Return the sessions with an update, sorted, on which the two parties agree before they add."""
        return sorted(name for name, session in self._sessions.items() if session.update is not None)

    def digests(self) -> dict[bytes, tuple[bytes, bytes]]:
        """Return, for each complete session, the digests of the data that must be the same for both parties."""
        return {
            name: (self._known(name).alike, check_update(self.round, self.party, name, self._complete(name).update))
            for name in self.complete()
        }

    def share(self, session_ids: list[bytes]) -> Share:
        """Return this party's share of the sum over exactly these sessions; a round opens for one list only."""
        task = self.round.task
        if sorted(set(session_ids)) != session_ids:
            raise SessionError("the list of sessions must be sorted and name each once")
        if not task.min_cohort <= len(session_ids) <= task.cohort:
            raise SpecError("fewer sessions than the minimum cohort or more than the cohort: this sum stays closed")
        if self._opened not in (None, session_ids):
            raise SessionError("this round was opened for another list of sessions")
        uploads = [self._complete(name) for name in session_ids]
        share = Share.empty(self.round)
        self._evaluation.add(uploads, share)
        self._opened = list(session_ids)
        return share

    def _check_open(self) -> None:
        if self._opened is not None:
            raise SessionError("this round is closed; join the next one")

    def _known(self, session_id: bytes) -> _Session:
        if session_id not in self._sessions:
            raise SessionError("no keys have been received for this session")
        return self._sessions[session_id]

    def _complete(self, session_id: bytes) -> SessionBodies:
        session = self._known(session_id)
        if session.update is None:
            raise SessionError("a session on the list has no update")
        return SessionBodies(session_id, session.keys, session.update)


def agree(first: PartyRound, second: PartyRound) -> list[bytes]:
    """Return the sessions that count: complete on both sides, with the same public parts; sorted."""
    other = second.digests()
    return sorted(name for name, digests in first.digests().items() if other.get(name) == digests)
