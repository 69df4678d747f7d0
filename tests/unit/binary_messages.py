"""Binary messages of every kind, and how each is made and read."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from tests.unit.sessions import direct, make_round, make_task, random_blocks, random_ring, rng_of

from secemb_shared.dpf import HASH_BYTES, Blocks, CorrectionWords, RingArray
from secemb_shared.messages import (
    Kind,
    RoundSpec,
    TaskSpec,
    decode_answer,
    decode_keys,
    decode_sum_share,
    decode_update,
    encode_answer,
    encode_keys,
    encode_sum_share,
    encode_update,
)
from secemb_shared.messages.spec import SUM_SIZES, TRAIN

SESSION = bytes(range(16))


SEED = b"sixteen byte key"


TASKS = {
    "binned": make_task(),  # 3 · 12 control bits: four padding bits
    "no padding bits": make_task(tables=2),
    "direct": direct(),
    "64 bits": make_task(ring_bits=64, fraction_bits=20),
    "no levels": make_task(items=5, capacity=5, tables=1, bins=5),
    "no dense part": make_task(dense_size=0),
}


EACH_TASK = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)


def random_words(task: TaskSpec, seed: int = 0) -> CorrectionWords:
    geometry, rng = task.geometry, rng_of(seed)
    bits = rng.integers(0, 2, size=(geometry.depth, geometry.slots), dtype=np.uint8)
    return CorrectionWords(random_blocks(rng, geometry.depth, geometry.slots), bits)


def random_corrections(task: TaskSpec, seed: int = 0) -> Blocks:
    """Return corrections of leaf hashes, (slots, 48)."""
    return random_blocks(rng_of(seed), 3 * task.geometry.slots).reshape(task.geometry.slots, HASH_BYTES)


def random_rows(task: TaskSpec, extra: int = 0) -> RingArray:
    bits = 32 if extra else task.ring_bits
    return random_ring(rng_of(1), (task.geometry.slots, task.row_width + extra), bits)


def dense_of(task: TaskSpec, party: int) -> RingArray | None:
    return random_ring(rng_of(2), task.dense_size, task.ring_bits) if party == 0 else None


@dataclass(frozen=True)
class Format:
    """One message: how it is made and how it is read, and in which kind of round."""

    kind: Kind
    encode: Callable[[RoundSpec, bytes, int], bytes]
    decode: Callable[[RoundSpec, bytes, int, bytes], object]
    round_kind: str = TRAIN

    def __str__(self) -> str:
        return f"{self.kind.name} {self.round_kind}"

    def round(self, task: TaskSpec | None = None) -> RoundSpec:
        return make_round(task or make_task(), kind=self.round_kind)


def make_keys(round_: RoundSpec, session_id: bytes, party: int) -> bytes:
    return encode_keys(round_, session_id, party, SEED, random_words(round_.task), random_corrections(round_.task))


def make_answer(round_: RoundSpec, session_id: bytes, party: int) -> bytes:
    return encode_answer(round_, session_id, party, random_rows(round_.task, extra=1))


def make_update(round_: RoundSpec, session_id: bytes, party: int) -> bytes:
    return encode_update(round_, session_id, party, random_rows(round_.task), dense_of(round_.task, party))


def make_sum_share(round_: RoundSpec, session_id: bytes, party: int) -> bytes:
    share = SEED if party else random_ring(rng_of(3), round_.sum_size, 64)
    return encode_sum_share(round_, session_id, party, share)


FORMATS = [
    Format(Kind.KEYS, make_keys, decode_keys),
    Format(Kind.ANSWER, make_answer, decode_answer),
    Format(Kind.UPDATE, make_update, decode_update),
    *(Format(Kind.SUM_SHARE, make_sum_share, decode_sum_share, kind) for kind in SUM_SIZES),
]


EACH_FORMAT = pytest.mark.parametrize("message", FORMATS, ids=str)


EACH_KIND = pytest.mark.parametrize("kind", SUM_SIZES)


PARTIES = pytest.mark.parametrize("party", [0, 1])
