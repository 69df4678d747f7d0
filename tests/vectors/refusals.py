"""What must be refused, against the error that the vectors name; and what must not be."""

from collections.abc import Callable

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from tests.vectors.values import Case, error_of, numbers, raw

from secemb_shared import row_access
from secemb_shared.dpf import Backend
from secemb_shared.holds import check_upload_mac
from secemb_shared.layout import Placement
from secemb_shared.messages import (
    Kind,
    RoundSpec,
    TaskSpec,
    decode_answer,
    decode_keys,
    decode_sum_share,
    decode_update,
)
from secemb_shared.messages.canonical import digest
from secemb_shared.messages.relay_key import RelayKey
from secemb_shared.messages.relayed import decode_relayed_answer, open_content, rebuild, split_relayed, step_of
from secemb_shared.messages.spec import TRAIN


class Refusals:
    """The decoders of one session, by the names that the file uses."""

    def __init__(self, document: Case, backend: Backend) -> None:
        self.backend = backend
        self.task = TaskSpec.decode(document["task"].encode("ascii"))
        rounds = {kind: RoundSpec.decode(text.encode("ascii"), self.task) for kind, text in document["rounds"].items()}
        assert all(round_.kind == kind for kind, round_ in rounds.items())
        self.rounds, self.session_id = rounds, raw(document["session_id"])
        self.relay_private = X25519PrivateKey.from_private_bytes(raw(document["relay_private"]))
        self.holds = [raw(hold) for hold in document["holds"]]
        items, leaves = numbers(document["slot_items"]), numbers(document["slot_leaves"])
        self.placement = Placement(items=items, leaves=leaves, truncated=0)
        self.decoders: dict[str, Callable[[Case], object]] = {
            "keys": lambda case: decode_keys(*self._message(case)),
            "answer": lambda case: decode_answer(*self._message(case)),
            "update": lambda case: decode_update(*self._message(case)),
            "sum_share": lambda case: decode_sum_share(*self._message(case)),
            "rows": self._recover,
            "relayed_keys": self._split,
            "relayed_upload": self._split,
            "relayed_answer": lambda case: decode_relayed_answer(
                self.rounds[TRAIN], self.session_id, raw(case["data"])
            ),
            "proof": lambda case: self._prove(case["round_kind"], case["party"], raw(case["data"]), raw(case["proof"])),
            "box": self._open,
            "relay_key": lambda case: RelayKey.read(self.task, raw(case["data"])),
            "task": lambda case: TaskSpec.decode(_text(case)),
            "round": lambda case: RoundSpec.decode(_text(case), self.task),
        }

    def check(self, case: Case) -> None:
        """An accepted case names no error."""
        assert error_of(lambda: self.decoders[case["decoder"]](case)) == case.get("error")

    def _split(self, case: Case) -> object:
        kind = Kind[case["decoder"].upper()]
        return split_relayed(self.rounds[case["round_kind"]], self.session_id, kind, raw(case["data"]))

    def _open(self, case: Case) -> object:
        round_ = self.rounds[case["round_kind"]]
        step, sealed = step_of(round_, Kind[case["relayed"].upper()]), raw(case["sealed"])
        content = open_content(round_, self.session_id, step, self.relay_private, sealed)
        message, mac = rebuild(round_, self.session_id, step, raw(case["public"]), content)
        if step is not Kind.KEYS:
            self._prove(case["round_kind"], 1, message, mac)
        return message

    def _prove(self, kind: str, party: int, upload: bytes, mac: bytes) -> None:
        check_upload_mac(self.rounds[kind].label(self.session_id), self.holds[party], digest(upload), mac)

    def _message(self, case: Case) -> tuple[RoundSpec, bytes, int, bytes]:
        return self.rounds[case["round_kind"]], self.session_id, case["party"], raw(case["data"])

    def _recover(self, case: Case) -> object:
        round_ = self.rounds[TRAIN]
        words = [decode_answer(round_, self.session_id, b, raw(data)) for b, data in enumerate(case["answers"])]
        return row_access.recover(round_, self.placement, (words[0], words[1]), self.backend)


def _text(case: Case) -> bytes:
    return raw(case["data"]) if "data" in case else case["text"].encode("ascii")
