"""What must be refused, against the error that the vectors name; and what must not be."""

from collections.abc import Callable

from secemb_shared import reading
from secemb_shared.dpf import Backend
from secemb_shared.layout import Placement
from secemb_shared.messages import (
    RoundSpec,
    TaskSpec,
    decode_answer,
    decode_keys,
    decode_sum_share,
    decode_update,
)

from tests.vectors.values import Case, error_of, numbers, raw


class Refusals:
    """The decoders of one session, by the names that the file uses."""

    def __init__(self, document: Case, backend: Backend) -> None:
        self.backend = backend
        self.task = TaskSpec.decode(document["task"].encode("ascii"))
        self.round = RoundSpec.decode(document["round"].encode("ascii"), self.task)
        self.session_id, self.count = raw(document["session_id"]), int(document["sum_share_count"])
        items, leaves = numbers(document["slot_items"]), numbers(document["slot_leaves"])
        self.placement = Placement(items=items, leaves=leaves, truncated=0)
        self.decoders: dict[str, Callable[[Case], object]] = {
            "keys": lambda case: decode_keys(self.round, self.session_id, case["party"], raw(case["data"])),
            "answer": lambda case: decode_answer(self.round, self.session_id, case["party"], raw(case["data"])),
            "update": lambda case: decode_update(self.round, self.session_id, case["party"], raw(case["data"])),
            "sum_share": lambda case: decode_sum_share(
                self.round, self.session_id, case["party"], raw(case["data"]), self.count
            ),
            "rows": self._recover,
            "task": lambda case: TaskSpec.decode(_text(case)),
            "round": lambda case: RoundSpec.decode(_text(case), self.task),
        }

    def check(self, case: Case) -> None:
        """An accepted case names no error."""
        assert error_of(lambda: self.decoders[case["decoder"]](case)) == case.get("error")

    def _recover(self, case: Case) -> object:
        words = [decode_answer(self.round, self.session_id, b, raw(data)) for b, data in enumerate(case["answers"])]
        return reading.recover(self.round, self.placement, (words[0], words[1]), self.backend)


def _text(case: Case) -> bytes:
    return raw(case["data"]) if "data" in case else case["text"].encode("ascii")
