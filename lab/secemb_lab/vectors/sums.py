"""Vectors of secure sums: rounds of both kinds that have one, every session's numbers, shares and messages."""

import numpy as np
import numpy.typing as npt

from secemb_lab.vectors.document import Json, hex_floats, plain
from secemb_lab.vectors.source import Source
from secemb_lab.vectors.specifications import binned, direct
from secemb_shared import secure_sum
from secemb_shared.dpf import RingArray
from secemb_shared.dpf._portable import Portable
from secemb_shared.labels import Purpose
from secemb_shared.messages import RoundSpec, TaskSpec, encode_sum_share
from secemb_shared.messages.spec import EVALUATE, SURVEY
from secemb_shared.secure_sum import SUM_BOUND, SUM_RING

Reals = npt.NDArray[np.float64]


def sums() -> Json:
    """Both kinds, in tasks of both rings: the ring of a secure sum is not the task's."""
    rounds = [(task, kind) for task in (binned(), direct()) for kind in (SURVEY, EVALUATE)]
    return {"rounds": [_Sum(task, kind, Source(f"sums {task.name} {kind}")).play() for task, kind in rounds]}


class _Sum:
    """A round in which devices add numbers up, seen by both parties."""

    def __init__(self, task: TaskSpec, kind: str, source: Source) -> None:
        self.source = source
        self.round = RoundSpec(task=task, number=4, model_version=2, model_digest=source(32), kind=kind)
        self.shares: list[RingArray] = [np.zeros(self.round.sum_size, dtype=SUM_RING.dtype) for _ in (0, 1)]

    def play(self) -> Json:
        """Return the whole sum: two devices with numbers of their own, one at the bound and one with nothing to say."""
        size = self.round.sum_size
        devices = [self._measured(), self._measured(), np.full(size, SUM_BOUND * 2.0**-16), np.zeros(size)]
        sessions = [self._session(values) for values in devices]
        total: RingArray = self.shares[0] + self.shares[1]
        return {
            "task": self.round.task.encode().decode("ascii"),
            "round": self.round.encode().decode("ascii"),
            "sum_size": size,
            "sessions": sessions,
            "shares": [plain(share) for share in self.shares],
            "sum": plain(total),
            "totals": hex_floats(SUM_RING.decode(total)),
        }

    def _measured(self) -> Reals:
        """Return what a device might find: whole numbers where something is counted, thirds where it is measured."""
        found = 1.0 + self.source.below(500, self.round.sum_size)
        counted = np.isin(np.arange(found.size), (0, 3, 4, 10, 11))
        return np.where(counted, found, found / 3.0)

    def _session(self, values: Reals) -> Json:
        session_id, seed = self.source(16), self.source(16)
        elements = SUM_RING.encode(values, bound=SUM_BOUND)
        key = self.round.label(session_id).key(Purpose.SUM_SHARE, seed)
        share = secure_sum.hide(key, elements, Portable())
        self.shares[0] += share
        secure_sum.add_seeded(key, self.shares[1], Portable())
        messages = (
            encode_sum_share(self.round, session_id, 0, share),
            encode_sum_share(self.round, session_id, 1, seed),
        )
        return {
            "session_id": session_id.hex(),
            "values": hex_floats(values),
            "elements": plain(elements),
            "seed": seed.hex(),
            "messages": [message.hex() for message in messages],
        }
