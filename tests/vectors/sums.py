"""Secure sums against their vectors: every session's numbers and messages, both shares and the total."""

import numpy as np
from tests.vectors.values import Case, elements, raw

from secemb_lab.vectors.document import hex_floats, plain
from secemb_shared import secure_sum
from secemb_shared.dpf import Backend, RingArray
from secemb_shared.labels import Purpose
from secemb_shared.messages import RoundSpec, TaskSpec, decode_sum_share, encode_sum_share
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING


class Sum:
    """One sum as the file describes it."""

    def __init__(self, case: Case, backend: Backend) -> None:
        self.case, self.backend = case, backend
        self.round = RoundSpec.decode(case["round"].encode("ascii"), TaskSpec.decode(case["task"].encode("ascii")))
        self.shares = [np.zeros(case["sum_size"], dtype=SUM_RING.dtype) for _ in (0, 1)]

    def check(self) -> None:
        assert self.round.sum_size == self.case["sum_size"]
        sessions = [self._check_session(session) for session in self.case["sessions"]]
        assert [plain(share) for share in self.shares] == self.case["shares"]
        total: RingArray = self.shares[0] + self.shares[1]
        assert plain(total) == self.case["sum"]
        assert np.array_equal(np.sum(sessions, axis=0, dtype=SUM_RING.dtype), total)
        assert hex_floats(SUM_RING.decode(total)) == self.case["totals"]

    def _check_session(self, case: Case) -> RingArray:
        """Make the messages again, let both parties read and add them, and return the numbers behind them."""
        session_id, seed = raw(case["session_id"]), raw(case["seed"])
        reals = np.array([float.fromhex(value) for value in case["values"]])
        assert hex_floats(reals) == case["values"]
        values = SUM_RING.encode(reals, bound=SUM_BOUND)
        assert np.array_equal(elements(case["elements"], SUM_RING), values)
        key = self.round.label(session_id).key(Purpose.SUM_SHARE, seed)
        share = secure_sum.hide(key, values, self.backend)
        messages = [
            encode_sum_share(self.round, session_id, 0, share),
            encode_sum_share(self.round, session_id, 1, seed),
        ]
        assert [message.hex() for message in messages] == case["messages"]
        explicit = decode_sum_share(self.round, session_id, 0, messages[0])
        assert isinstance(explicit, np.ndarray)
        assert np.array_equal(explicit, share)
        assert decode_sum_share(self.round, session_id, 1, messages[1]) == seed
        self.shares[0] += explicit
        secure_sum.add_seeded(key, self.shares[1], self.backend)
        return values


def check_sum(case: Case, backend: Backend) -> None:
    Sum(case, backend).check()
