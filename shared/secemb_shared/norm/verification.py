"""The servers' side: one short message per session to the other server, and the decision from both messages."""

from dataclasses import dataclass

import numpy as np

from secemb_shared import secure_sum
from secemb_shared.dpf import Backend, RingArray, default_backend
from secemb_shared.errors import SpecError
from secemb_shared.labels import Label, Purpose
from secemb_shared.norm.circuit import Assignment, lifted
from secemb_shared.norm.shape import ROWS, TRANSCRIPT_BYTES, NormShape
from secemb_shared.norm.transcript import Commitments, Joint, Statement, challenge, join


@dataclass(frozen=True, slots=True, repr=False)
class Held:
    """One server's parts of a session's update and proof. Server 1 receives no shares: they are streams of its seed."""

    statement: Statement
    public: bytes  # the commitments, from the device
    seed: bytes  # this server's master seed
    slot_sums: RingArray  # (slots, width)
    dense_share: RingArray | None = None
    norm_share: bytes | None = None


class Verifier:
    """One server's side of the check in one round.

    Only one message may ever be made for a session: the masks of its polynomials hide one point, not two. The check key
    is a secret of the two servers. A device that knew it could prove anything.
    """

    def __init__(
        self, shape: NormShape, round_label: Label, *, party: int, check_key: bytes, backend: Backend | None = None
    ) -> None:
        field = shape.field
        seed = round_label.key(Purpose.NORM_POINT, check_key)
        self._point = field.stream(seed, 1, above=2 * ROWS)[0]
        self._factors = field.lagrange(ROWS, self._point)
        self._products = field.lagrange(2 * ROWS, self._point)
        self._shape, self._party = shape, party
        self._backend = backend or default_backend()

    def message(self, held: Held) -> bytes:
        """Return this server's message about a session; if the proof is false, it does not match the other server's."""
        shape, field = self._shape, self._shape.field
        self._check(held)
        dense_share, masks, witness, product = self._shares(held)
        seed, joint = self._challenges(held)
        update = np.concatenate([held.slot_sums.reshape(-1), dense_share])
        projections = lifted(shape, self._party, self._backend.project(seed[:16], update))
        constant = 0 if self._party else shape.threshold
        assignment = Assignment.of(shape, joint.rho, projections, witness, constant=constant)
        f, g = [masks[: shape.columns], *assignment.z], [masks[shape.columns :], *assignment.weighted]
        values = [field.dot(self._factors, column) for rows in (f, g) for column in zip(*rows, strict=True)]
        values.append(field.dot(self._products, product))
        values.append((sum(product[1 : ROWS + 1]) - assignment.linear) % field.prime)
        return joint.transcript + field.encode(values)

    def _check(self, held: Held) -> None:
        shape = self._shape
        if held.slot_sums.shape != (shape.slots, shape.width):
            raise SpecError("the norm proof needs the sum of every slot in the session")
        if (held.dense_share is None, held.norm_share is None) != (self._party == 1, self._party == 1):
            raise SpecError(
                "server 0 must have explicit shares of the dense part and the proof, and server 1 must have neither"
            )
        if held.dense_share is not None and held.dense_share.shape != (shape.dense,):
            raise SpecError("the norm proof needs the whole share of the dense part")

    def _shares(self, held: Held) -> tuple[RingArray, list[int], list[int], list[int]]:
        """Return this server's shares of the dense part, the masks, the witness and h."""
        shape, field, masks = self._shape, self._shape.field, 2 * self._shape.columns
        key, counted = held.statement.label.key(Purpose.NORM_SHARE, held.seed), shape.witness + shape.product
        if held.dense_share is not None and held.norm_share is not None:
            dense, own, shares = held.dense_share, field.stream(key, masks), field.decode(held.norm_share, counted)
        else:
            dense = np.zeros(shape.dense, dtype=held.slot_sums.dtype)
            secure_sum.add_seeded(held.statement.label.key(Purpose.DENSE_SHARE, held.seed), dense, self._backend)
            own = field.stream(key, masks + counted)
            own, shares = own[:masks], own[masks:]
        return dense, own, shares[: shape.witness], shares[shape.witness :]

    def _challenges(self, held: Held) -> tuple[bytes, Joint]:
        """Return the challenges. This server recomputes the commitments it can: a false commitment changes them."""
        statement, claimed = held.statement, Commitments.decode(held.public)
        own = statement.commit_share(self._party, held.seed, held.dense_share)
        shares = (own, claimed.share1) if self._party == 0 else (claimed.share0, own)
        witness = claimed.witness
        if held.norm_share is not None:
            explicit = held.norm_share[: self._shape.witness * self._shape.field.size]
            witness = statement.commit_witness(held.seed, explicit)
        seed = challenge(statement, *shares)
        return seed, join(statement, self._shape.field, seed, witness)


def agree(shape: NormShape, message0: bytes, message1: bytes) -> bool:
    """Return whether the update of a session is short enough to count, from both servers' messages."""
    transcripts = {message[:TRANSCRIPT_BYTES] for message in (message0, message1)}
    count = 2 * shape.columns + 2
    shares = [shape.field.decode(message[TRANSCRIPT_BYTES:], count) for message in (message0, message1)]
    values = [sum(pair) % shape.field.prime for pair in zip(*shares, strict=True)]
    f, g, (product, out) = values[: shape.columns], values[shape.columns : -2], values[-2:]
    return len(transcripts) == 1 and out == 0 and product == shape.field.dot(f, g)
