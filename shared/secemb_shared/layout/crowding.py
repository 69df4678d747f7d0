"""How likely items of one table crowd together: the building block of the loss bound.

Of the `items` positions of a table, s different ones are drawn. They *crowd into a bins* when they fall into exactly
a bins and none of these holds fewer than two of them.

There are T(s, a) = Σ_A Σ_n Π_i C(size_i, n_i) crowded draws, over the sets A of a bins and all n_i ≥ 2 that sum to
s, and the chance is T(s, a) / C(items, s). Bins have two sizes, L = ceil(items / bins) and L - 1. The sizes of a
bins drawn without replacement are negatively associated (Joag-Dev & Proschan 1983) and C(size, n) grows with size,
so the mean of the product is at most the product of the means and

    T(s, a) ≤ C(bins, a) · [x^s] g(x)^a,    g(x) = Σ_{n≥2} mean over all bins of C(size, n) · x^n.

This is an equality when all bins have the same size. Nothing here assumes that items are dealt independently.
"""

import numpy as np
import numpy.typing as npt

Reals = npt.NDArray[np.float64]

# More than what is lost by underflow and by cutting the tail of g; adding it keeps an upper bound an upper bound.
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
    with the cube of `most`; without, it is Chernoff's g(x)^a / x^s at that load, which is quick but less sharp.
    """

    def __init__(self, *, items: int, bins: int, most: int, typical_load: float, exact: bool) -> None:
        self._leaves = -(-items // bins)
        self._used = np.arange(min(bins, most // 2) + 1)
        self._log_x, log_g, shares = _tilt(_log_mean_choices(items, bins, most), typical_load)
        self._log_bins = log_binomials(bins, self._used.size - 1) + self._used * log_g
        self._log_draws = log_binomials(items, most)
        self._powers = _powers(shares, self._used.size, most) if exact else None

    def log_chances(self, size: int) -> Reals:
        """Return log of the bound for s = `size` and a = 0, 1, …; -inf where it cannot be."""
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
