"""The norm proof: a device proves to two servers that its whole update is short, and reveals nothing else about it.

The servers hold shares x₀ + x₁ of the update modulo 2^b. A hash of everything that determines them selects 128
projections with entries −1, 0, 0, +1. The device shares one carry bit per projection, which turns the projections into
shares of integers R_k, and proves in zero knowledge that the carries are bits and that Σ R_k² is at most 128 ·
bound². docs/reference/norm-proof.md has the construction and the argument.
"""

from secemb_shared.norm.proof import Proof, prove
from secemb_shared.norm.shape import PUBLIC_BYTES, NormShape
from secemb_shared.norm.transcript import Statement
from secemb_shared.norm.verification import Held, Verifier, agree

__all__ = ["PUBLIC_BYTES", "Held", "NormShape", "Proof", "Statement", "Verifier", "agree", "prove"]
