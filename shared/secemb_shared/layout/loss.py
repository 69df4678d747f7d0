"""A rigorous upper bound on the chance that a full set of items does not fit a binned layout."""

import math

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

# Exceeds the error from underflow and from truncating the tail of g; adding it keeps the result an upper bound.
_LOST_BY_ROUNDING = 1e-280
_SMALLEST_KEPT = 1e-300


def log_binomials(top: int, most: int) -> Reals:
    """Return log C(top, i) for i = 0 … most, -inf beyond `top`."""
    steps = np.arange(most, dtype=np.float64)
    with np.errstate(divide="ignore"):
        return np.concatenate([[0.0], np.cumsum(np.log(np.maximum(top - steps, 0.0) / (steps + 1.0)))])


class Crowding:
    """Upper bounds on the chance that s items crowd into a bins of one table, for s up to `most`.

    `typical_load` is the s/a that matters most. With `exact` the coefficient of g^a is computed, in time that grows
    with the cube of `most`; otherwise Chernoff's g(x)^a / x^s at that load is used, which is fast but less tight.
    """

    def __init__(self, *, items: int, bins: int, most: int, typical_load: float, exact: bool) -> None:
        self._leaves = -(-items // bins)
        self._used = np.arange(min(bins, most // 2) + 1)
        self._log_x, log_g, shares = _tilt(_log_mean_choices(items, bins, most), typical_load)
        self._log_bins = log_binomials(bins, self._used.size - 1) + self._used * log_g
        self._log_draws = log_binomials(items, most)
        self._powers = _powers(shares, self._used.size, most) if exact else None

    def log_chances(self, size: int) -> Reals:
        """Return log of the bound for s = `size` and a = 0, 1, …; -inf where this is impossible."""
        logs = self._log_bins - size * self._log_x - self._log_draws[size]
        if self._powers is not None:
            logs = logs + np.log(self._powers[:, size] + _LOST_BY_ROUNDING)
        possible = (2 * self._used <= size) & (size <= self._leaves * self._used)
        chances: Reals = np.where(possible, logs, -np.inf)
        return chances


def _log_mean_choices(items: int, bins: int, most: int) -> Reals:
    """Return the logarithms of g's coefficients."""
    size = -(-items // bins)
    full = items - (size - 1) * bins
    top = min(size, most)
    with np.errstate(divide="ignore"):
        shares = np.log([full / bins, (bins - full) / bins])
    logs: Reals = np.logaddexp(shares[0] + log_binomials(size, top), shares[1] + log_binomials(size - 1, top))
    logs[:2] = -np.inf
    return logs


def _tilt(logs: Reals, mean: float) -> tuple[float, float, Reals]:
    """Return log x, log g(x) and each term's share of g(x), for the x > 0 that makes the mean exponent `mean`."""
    low, high = -64.0, 64.0
    exponents = np.arange(logs.size)
    for _ in range(64):
        log_x = (low + high) / 2
        log_g = float(np.logaddexp.reduce(logs + exponents * log_x))
        shares = np.exp(logs + exponents * log_x - log_g)
        low, high = (log_x, high) if shares @ exponents < mean else (low, log_x)
    return log_x, log_g, shares


def _powers(shares: Reals, count: int, most: int) -> Reals:
    """Return the coefficients of shares(x)^a, shape (count, most + 1) as [a, s]: the chance that a draws sum to s.

    Plain convolution, not FFT: only sums of positive terms keep the relative precision of tiny coefficients.
    """
    kernel = shares[: np.flatnonzero(shares > _SMALLEST_KEPT)[-1] + 1]
    rows = np.zeros((count, most + 1))
    rows[0, 0] = 1.0
    for used in range(1, count):
        rows[used] = np.convolve(rows[used - 1], kernel)[: most + 1]
    return rows


MOST_EXACT = 800  # above this, the faster form of the bound is used, which takes about 1 % more slots
_RELATIVE_ERROR = 1e-6  # a generous allowance for all sums together
_LOST_BY_UNDERFLOW = 1e-250
_NEGLIGIBLE = math.log(1e-30)  # a term that is certainly smaller need not be computed precisely


def loss_bound(*, items: int, capacity: int, tables: int, bins: int) -> float:
    """Return an upper bound on the chance that some item of a full set of `capacity` items finds no place."""
    chosen = min(capacity, items)
    if tables * bins < chosen:
        return 1.0
    if chosen <= tables or bins == items:
        return 0.0  # an item has a slot in each table, and a bin with a single item is never contested
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
        """Return the logarithm of the term for each s; sets with fewer items always find slots."""
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
        """Return p(a): at least this fraction of the places that S leaves free is in the bins of S."""
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
        # Chernoff: dropping the limit on Σ a_τ, and with it a power of e that is at most 1, can only increase the sum.
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
    """Return t ≤ 0 so that logs[i] + t·i peaks near `middle`, where the dominant terms are and must not underflow."""
    at = min(int(middle), logs.size - 2)
    return min(0.0, float(logs[at] - logs[at + 1])) if logs.size > 1 else 0.0
