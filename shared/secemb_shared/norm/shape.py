"""The sizes of a task's norm proof, which follow from its ring, the length of its updates and the bound."""

from dataclasses import dataclass

from secemb_shared.dpf.backend import PROJECTIONS
from secemb_shared.errors import SpecError
from secemb_shared.norm.field import FIELDS, Field

ROWS = 16  # c: values of the witness per polynomial. More take more bytes from a device and fewer between the servers.
DIGEST_BYTES = 32
PUBLIC_BYTES = 3 * DIGEST_BYTES  # the commitments, the same for both servers
TRANSCRIPT_BYTES = 16


@dataclass(frozen=True, slots=True)
class NormShape:
    """The shape of one task's proofs; `norm_bound` is in the ring's smallest steps."""

    bits: int
    slots: int
    width: int
    dense: int
    norm_bound: int

    def __post_init__(self) -> None:
        if self.bits not in FIELDS:
            raise SpecError("the norm proof is defined for rings of 24, 32 and 64 bits")
        if self.slots < 1 or self.width < 1 or self.dense < 0:
            raise SpecError("the norm proof needs at least one slot of at least one element")
        if not 1 <= self.norm_bound <= self.largest_bound(self.bits):
            raise SpecError(
                f"norm_bound must be 1 to 2^{self.bits - 5} ring steps, because a projection could overflow beyond"
                " that; use fewer fraction bits or a larger ring"
            )

    @staticmethod
    def largest_bound(bits: int) -> int:
        """Return the largest bound whose projections cannot come close to wrapping around the ring."""
        return 1 << (bits - 5)

    @property
    def field(self) -> Field:
        """Return the field in which the proof is made."""
        return FIELDS[self.bits]

    @property
    def size(self) -> int:
        """Return N, the length of the whole update: the slots' rows, then the dense part."""
        return self.slots * self.width + self.dense

    @property
    def threshold(self) -> int:
        """Return T = 128 · bound²: the limit on the sum of the squares of all projections."""
        return PROJECTIONS * self.norm_bound**2

    @property
    def slack_bits(self) -> int:
        """Return l, the number of bits that represent T − Σ R²."""
        return self.threshold.bit_length()

    @property
    def witness(self) -> int:
        """Return how many bits the device shares: a carry for each projection, and the slack."""
        return PROJECTIONS + self.slack_bits

    @property
    def columns(self) -> int:
        """Return the number of polynomial pairs that carry the projections and the witness."""
        return -(-(PROJECTIONS + self.witness) // ROWS)

    @property
    def product(self) -> int:
        """Return how many values determine the product polynomial h, of degree 2c."""
        return 2 * ROWS + 1

    @property
    def share_bytes(self) -> int:
        """Return the size of server 0's share of the witness and of h; server 1's is a stream."""
        return (self.witness + self.product) * self.field.size

    def check_share(self, share: bytes) -> None:
        """Refuse an invalid share of the proof: wrong length, or numbers that are not below the prime."""
        self.field.decode(share, self.witness + self.product)

    @property
    def message_bytes(self) -> int:
        """Return the length of a server's message about one session."""
        return TRANSCRIPT_BYTES + (2 * self.columns + 2) * self.field.size
