"""Sessions with a norm proof, for its tests: random shares of a chosen update, and both servers' messages about it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property

import numpy as np
from tests.unit.sessions import random_ring, rng_of

from secemb_shared import secure_sum
from secemb_shared.dpf import Backend, RingArray
from secemb_shared.labels import Label, Purpose
from secemb_shared.norm import Held, NormShape, Proof, Statement, Verifier, agree, prove
from secemb_shared.ring import Ring

TASK, ROUND, CHECK_KEY = bytes(range(32)), 9, b"a secret of the two servers"
SMALL = NormShape(bits=32, slots=5, width=3, dense=4, norm_bound=2**20)
TINY = NormShape(bits=24, slots=5, width=3, dense=4, norm_bound=2**19)
WIDE = NormShape(bits=64, slots=3, width=2, dense=0, norm_bound=2**50)

Alter = Callable[[Held], Held]


def keep(held: Held) -> Held:
    return held


def make_verifiers(shape: NormShape, check_key: bytes, backend: Backend | None) -> tuple[Verifier, Verifier]:
    place = Label(TASK, ROUND)
    return (
        Verifier(shape, place, party=0, check_key=check_key, backend=backend),
        Verifier(shape, place, party=1, check_key=check_key, backend=backend),
    )


@cache
def default_verifiers(shape: NormShape, check_key: bytes) -> tuple[Verifier, Verifier]:
    return make_verifiers(shape, check_key, None)


@dataclass
class Session:
    """One session: its update is the vector `values`, shared with the randomness of `seed`."""

    shape: NormShape
    values: RingArray  # the slots' rows, then the dense part
    seed: int = 0
    backend: Backend | None = None

    def __post_init__(self) -> None:
        shape, rng = self.shape, rng_of(self.seed, self.shape.bits)
        rows = (shape.slots, shape.width)
        self.label = Label(TASK, ROUND, rng.bytes(16))
        self.statement = Statement(self.label, Ring(bits=shape.bits), rng.bytes(32), random_ring(rng, rows, shape.bits))
        self.seeds = (rng.bytes(16), rng.bytes(16))
        self.payload = self.values[: shape.slots * shape.width].reshape(rows)
        self.dense = self.values[shape.slots * shape.width :]
        self.slot_sums1 = random_ring(rng, rows, shape.bits)

    @cached_property
    def proof(self) -> Proof | None:
        return prove(
            self.shape,
            self.statement,
            seeds=self.seeds,
            payload=self.payload,
            dense=self.dense,
            slot_sums1=self.slot_sums1,
            backend=self.backend,
        )

    def held(self, proof: Proof) -> tuple[Held, Held]:
        dense_share = secure_sum.hide(self.label.key(Purpose.DENSE_SHARE, self.seeds[1]), self.dense)
        share0 = self.payload - self.slot_sums1
        return (
            Held(self.statement, proof.public, self.seeds[0], share0, dense_share, proof.share),
            Held(self.statement, proof.public, self.seeds[1], self.slot_sums1),
        )

    def verifiers(self, check_key: bytes = CHECK_KEY) -> tuple[Verifier, Verifier]:
        if self.backend is None:
            return default_verifiers(self.shape, check_key)
        return make_verifiers(self.shape, check_key, self.backend)

    def messages(self, proof: Proof, alter0: Alter = keep, alter1: Alter = keep) -> tuple[bytes, bytes]:
        """Return what the servers tell each other, after what they hold was altered."""
        held0, held1 = self.held(proof)
        first, second = self.verifiers()
        return first.message(alter0(held0)), second.message(alter1(held1))

    def accepted(self, proof: Proof | None = None, alter0: Alter = keep, alter1: Alter = keep) -> bool:
        """Tell what the servers decide about this proof, or about the honest one."""
        proof = proof or self.proof
        assert proof is not None
        return agree(self.shape, *self.messages(proof, alter0, alter1))


def vector(shape: NormShape, numbers: RingArray) -> RingArray:
    """Return signed whole numbers as the first elements of an update."""
    values = np.zeros(shape.size, dtype=np.int64)
    values[: numbers.size] = numbers
    return values.astype(np.uint64 if shape.bits == 64 else np.uint32)


def random_vector(shape: NormShape, length: float, seed: int, entries: int | None = None) -> RingArray:
    """Return a random update of at most `length` bounds, with this many entries that are not zero."""
    rng, count = rng_of(seed), shape.size if entries is None else entries
    direction = rng.normal(size=count)
    values = np.zeros(shape.size)
    places = rng.choice(shape.size, count, replace=False)
    values[places] = np.trunc(direction / np.linalg.norm(direction) * length * shape.norm_bound)
    return vector(shape, values.astype(np.int64))


def changed(held: Held, **changes: object) -> Held:
    return replace(held, **changes)  # type: ignore[arg-type]
