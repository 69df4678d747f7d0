"""The device's side: the witness, and a fully linear proof that it satisfies the statement (Boneh et al. 2019)."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from secemb_shared import secure_sum
from secemb_shared.dpf import Backend, RingArray, default_backend
from secemb_shared.errors import SpecError
from secemb_shared.labels import Purpose
from secemb_shared.norm.circuit import Assignment, lifted, witness_of
from secemb_shared.norm.field import Field
from secemb_shared.norm.shape import ROWS, NormShape
from secemb_shared.norm.transcript import Commitments, Statement, challenge, join


@dataclass(frozen=True, slots=True, repr=False)
class Proof:
    """The parts that are sent: the commitments to both servers, the share to server 0 only."""

    public: bytes
    share: bytes


def prove(
    shape: NormShape,
    statement: Statement,
    *,
    seeds: tuple[bytes, bytes],
    payload: RingArray,
    dense: RingArray,
    slot_sums1: RingArray,
    backend: Backend | None = None,
) -> Proof | None:
    """Return the proof that payload (slots, width) and dense (dense) are short, or None if they are too long.

    `slot_sums1` (slots, width) is server 1's share of the payload, from its keys and the correction words.
    """
    if payload.shape != (shape.slots, shape.width) or dense.shape != (shape.dense,):
        raise SpecError("the norm proof needs one payload per slot and the whole dense part")
    backend = backend or default_backend()
    dense_share = secure_sum.hide(statement.label.key(Purpose.DENSE_SHARE, seeds[1]), dense, backend)
    share0 = np.concatenate([(payload - slot_sums1).reshape(-1), dense_share])
    share1 = np.concatenate([payload.reshape(-1), dense]) - share0
    committed = (
        statement.commit_share(0, seeds[0], dense_share),
        statement.commit_share(1, seeds[1], None),
    )
    seed = challenge(statement, *committed)
    both = [lifted(shape, party, backend.project(seed[:16], share)) for party, share in enumerate((share0, share1))]
    witness = witness_of(shape, both[0], both[1])
    if witness is None:
        return None
    sums = [first + second for first, second in zip(*both, strict=True)]
    return prove_witness(shape, statement, seeds=seeds, committed=committed, seed=seed, lifted=sums, witness=witness)


def prove_witness(
    shape: NormShape,
    statement: Statement,
    *,
    seeds: tuple[bytes, bytes],
    committed: tuple[bytes, bytes],
    seed: bytes,
    lifted: Sequence[int],
    witness: Sequence[int],
) -> Proof:
    """Share a witness and prove it; the servers reject the proof of a false one."""
    field, masks = shape.field, 2 * shape.columns
    own0 = field.stream(statement.label.key(Purpose.NORM_SHARE, seeds[0]), masks)
    own1 = field.stream(statement.label.key(Purpose.NORM_SHARE, seeds[1]), masks + shape.witness + shape.product)
    witness_share = field.encode(_minus(field, witness, own1[masks : masks + shape.witness]))
    commitments = Commitments(*committed, statement.commit_witness(seeds[0], witness_share))
    joint = join(statement, field, seed, commitments.witness)
    assignment = Assignment.of(shape, joint.rho, lifted, witness, constant=shape.threshold)
    masked = [(first + second) % field.prime for first, second in zip(own0, own1, strict=False)]
    product = _product(field, assignment, masked[: shape.columns], masked[shape.columns :])
    product_share = field.encode(_minus(field, product, own1[masks + shape.witness :]))
    return Proof(commitments.encode(), witness_share + product_share)


def _minus(field: Field, values: Sequence[int], pads: Sequence[int]) -> list[int]:
    return [(value - pad) % field.prime for value, pad in zip(values, pads, strict=True)]


def _product(field: Field, assignment: Assignment, f_masks: list[int], g_masks: list[int]) -> list[int]:
    """Return h = Σ f_j · g_j at 0 … 2c: f_j and g_j are masked at 0 and pass through the rows at 1 … c."""
    f, g = [f_masks, *assignment.z], [g_masks, *assignment.weighted]
    f_columns, g_columns = list(zip(*f, strict=True)), list(zip(*g, strict=True))
    for weights in _beyond():
        f.append([field.dot(weights, column) for column in f_columns])
        g.append([field.dot(weights, column) for column in g_columns])
    return [field.dot(left, right) for left, right in zip(f, g, strict=True)]


@cache
def _beyond() -> list[list[int]]:
    """Return the weights that map values at 0 … c to those at c + 1 … 2c: integers, so no field is needed."""
    found = []
    for point in range(ROWS + 1, 2 * ROWS + 1):
        weights = []
        for node in range(ROWS + 1):
            above = below = 1
            for other in range(ROWS + 1):
                if other != node:
                    above *= point - other
                    below *= node - other
            weights.append(above // below)
        found.append(weights)
    return found
