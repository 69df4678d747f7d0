"""The choice of model versions to keep: the newest ones, increasingly fewer older ones, and fewer on a small disk."""

from collections.abc import Callable, Collection, Sequence

FEWEST = 3  # kept even on a very small disk


def choose_kept(
    versions: Sequence[int],
    *,
    keep: int,
    protect: Collection[int] = (),
    size: Callable[[int], int] = lambda _: 0,
    room: int | None = None,
) -> set[int]:
    """Return which of some versions, given in any order, to keep.

    The newest `keep` are kept. An older one is kept if its number is a multiple of 2^(b - 2), where b is the number of
    bits of its age: two for each doubling of the age, and version 0. A version dropped once is never needed later,
    because multiples of a power of two are multiples of the one below. If the versions take more than `room` bytes,
    `keep` is halved until they do not; the newest three, or `keep` if this is less, are always kept.
    """
    if keep < 1:
        raise ValueError("a store must keep at least its latest version")
    fewest = min(keep, FEWEST)
    while True:
        kept = _thinned(versions, keep, protect)
        if room is None or sum(map(size, kept)) <= room:
            return kept
        if keep <= fewest:
            return set(sorted(versions)[-fewest:]) | (set(protect) & set(versions))
        keep = max(fewest, keep // 2)


def _thinned(versions: Sequence[int], keep: int, protect: Collection[int]) -> set[int]:
    newest = max(versions, default=0)
    return {one for one in versions if one in protect or _stays(one, newest - one, keep)}


def _stays(version: int, age: int, keep: int) -> bool:
    return age < keep or version % (1 << max(0, age.bit_length() - 2)) == 0
