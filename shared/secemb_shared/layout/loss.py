"""A rigorous upper bound on the chance that a full set of items does not fit a binned layout.

Setting: n items, `tables` tables that each deal the catalogue by an independent, uniformly random permutation, and
one slot in each bin. N(S) is the set of slots that the items of S may use. By Hall's theorem some item stays without
a place iff the deficiency |S| - |N(S)| is positive for some S. Let D ≥ 1 be the largest deficiency, and let S be a
set that has it while no proper subset does.

1. Every slot of N(S) is open to at least two items of S: were it open to i alone, S without i would be as deficient.
2. Every item outside S has a slot outside N(S): otherwise S together with it had deficiency D + 1.

Sum the chance of 1 and 2 over all S. With s = |S| and a_τ slots of N(S) in table τ, Σ a_τ = s - D ≤ s - 1,

    P(loss) ≤ Σ_s C(n, s) · Σ_{Σ a_τ ≤ s - 1} Π_τ crowding(s, a_τ) · (1 - Π_τ p(a_τ))^(n - s).

*First factor*: the chance of 1, table by table, see `crowding`.

*Second factor*: the chance of 2, given where S lies. An outside item's place in table τ is one of the items - s that
are left, and at least a · floor(items / bins) - s of those are in bins of N(S); p(a) is that share. Places drawn
without replacement are negatively associated (Joag-Dev & Proschan 1983), and "all slots of item i are in N(S)" is
monotone in the places of i alone, hence the chance that this holds for no outside item is at most the product.
Without condition 2 the sum counts the very many violators of one rare bad deal one by one, and exceeds 1 where the
bound is in truth below one in a million.

To sum over the a_τ by convolution, the second factor must split by table. log(1 - e^u) is concave, so it lies below
its tangent at any u0: (1 - Π p_τ)^r ≤ C · Π p_τ^(-r·c) with c = e^u0 / (1 - e^u0), C = (1 - e^u0)^r · e^(r·c·u0).
Each p^(-r·c) may be cut off at 1/C: from there on the right side is at least 1, and a chance is not more.

The independent-hashing model, where each item picks its bins with replacement, is *not* used: dealing evenly makes
most crowding rarer but not all (four items always fall two and two into two bins of two). What is relied upon beyond
arithmetic: towards items chosen without a look at the round's key, the keyed permutation behaves like a random one.
"""

import math

import numpy as np

from secemb_shared.layout.crowding import Crowding, Reals, log_binomials

MOST_EXACT = 800  # above, the quicker form of the bound is used, which asks for about one slot in a hundred more
_RELATIVE_ERROR = 1e-6  # of all the sums together, generously
_LOST_BY_UNDERFLOW = 1e-250
_NEGLIGIBLE = math.log(1e-30)  # a term that is surely smaller need not be computed sharply


def loss_bound(*, items: int, capacity: int, tables: int, bins: int) -> float:
    """Return an upper bound on the chance that some item of a full set of `capacity` items finds no place."""
    chosen = min(capacity, items)
    if tables * bins < chosen:
        return 1.0
    if chosen <= tables or bins == items:
        return 0.0  # an item has a slot in each table; and a bin that holds one item is never contested
    log_terms = _Union(items=items, chosen=chosen, tables=tables, bins=bins).log_terms()
    total = sum(math.exp(min(term, 0.0)) for term in log_terms)
    return min(1.0, total * (1.0 + _RELATIVE_ERROR))


class _Union:
    """The sum over all S, for one deal of the catalogue."""

    def __init__(self, *, items: int, chosen: int, tables: int, bins: int) -> None:
        self.items = items
        self.chosen = chosen
        self.tables = tables
        self.smallest_bin = items // bins
        # S has about as many slots as items, so each bin of one table holds about `tables` of them.
        load = min(max(tables, 2.1), (-(-items // bins) + 2) / 2)
        self.exact = chosen <= MOST_EXACT
        self.crowding = Crowding(items=items, bins=bins, most=chosen, typical_load=load, exact=self.exact)

    def log_terms(self) -> list[float]:
        """Return the logarithm of the term of each s; fewer items than this cannot lack a slot."""
        sets = log_binomials(self.chosen, self.chosen)
        return [self._log_term(size, float(sets[size])) for size in range(self.tables + 1, self.chosen + 1)]

    def _log_term(self, size: int, log_sets: float) -> float:
        """Return log of C(n, s) · Σ_{Σ a_τ ≤ s-1} Π crowding(s, a_τ) · (1 - Π p(a_τ))^(n-s)."""
        chances = self.crowding.log_chances(size)
        log_constant, log_weights = self._outside(size, np.arange(chances.size, dtype=np.float64))
        return self._log_sum(chances + log_weights, size - 1, log_sets + log_constant)

    def _outside(self, size: int, used: Reals) -> tuple[float, Reals]:
        """Return log C and, for each a, the log weight -r·c·log p(a), cut off at -log C."""
        outside = self.chosen - size
        middle = float(self._share((size - 1) / self.tables, size)) if outside else 0.0
        if middle == 0.0:
            return 0.0, np.zeros(used.size)
        log_all = self.tables * math.log(middle)
        slope = math.exp(log_all) / -math.expm1(log_all)
        log_constant = outside * (math.log(-math.expm1(log_all)) + slope * log_all)
        with np.errstate(divide="ignore"):
            return log_constant, np.minimum(-outside * slope * np.log(self._share(used, size)), -log_constant)

    def _share(self, used: Reals | float, size: int) -> Reals:
        """Return p(a): at least this share of the places that S leaves free is in the bins of S."""
        return np.maximum(0.0, (used * self.smallest_bin - size) / (self.items - size))

    def _log_sum(self, logs: Reals, most: int, log_factor: float) -> float:
        """Return log of the factor times the sum of Π exp(logs[a_τ]) over all a_τ with Σ a_τ ≤ most."""
        possible = np.flatnonzero(np.isfinite(logs))
        if possible.size == 0 or self.tables * possible[0] > most:
            return -math.inf
        tilt = _tilt_towards(logs[possible], most / self.tables - possible[0])
        tilted = logs + tilt * np.arange(logs.size)
        top = float(tilted.max())
        weights = np.exp(tilted - top)
        log_scale = log_factor + self.tables * top - tilt * most
        # Chernoff: to forget the limit on Σ a_τ, and with it a power of e that is at most 1, can only add.
        quick = log_scale + self.tables * math.log(weights.sum())
        if not self.exact or quick < _NEGLIGIBLE:
            return quick
        return log_scale + math.log(_limited_sum(weights, self.tables, tilt, most) + _LOST_BY_UNDERFLOW)


def _limited_sum(weights: Reals, tables: int, tilt: float, most: int) -> float:
    """Return the sum of Π weights[a_τ] · e^(tilt · (most - Σ a_τ)) over all a_τ with Σ a_τ ≤ most."""
    products = weights
    for _ in range(tables - 1):
        products = np.convolve(products, weights)[: most + 1]
    below = most - np.arange(min(products.size, most + 1))
    return float(products[: below.size] @ np.exp(tilt * below))


def _tilt_towards(logs: Reals, middle: float) -> float:
    """Return t ≤ 0 so that logs[i] + t·i has its top near `middle`, where the sum is decided and must not underflow."""
    at = min(int(middle), logs.size - 2)
    return min(0.0, float(logs[at] - logs[at + 1])) if logs.size > 1 else 0.0
