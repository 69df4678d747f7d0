"""Sessions that each break one rule, about keys or the norm of an update, or break none and promote one item."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from secemb_lab.attack.forged_session import Forger, Messages
from secemb_shared.dpf import CorrectionWords, RingArray

_TRIES = 64  # with different seeds, and so different projections, if an update is only slightly too long
_RANDOM = np.random.default_rng()

Twist = Callable[[Forger], None]  # changes the keys
Write = Callable[[Forger], RingArray]  # returns the correction words


@dataclass(frozen=True, slots=True)
class Forgery:
    """Makes a hostile session."""

    write: Write
    twist: Twist | None = None
    tries: int = 1  # maximum number of tries for a true proof

    def make(self, begin: Callable[[], Forger]) -> tuple[Forger, Messages, Messages]:
        """Return the session, its keys and its update, with a true proof if one of the tries finds one."""
        for _ in range(self.tries):
            forger = begin()
            if self.twist is not None:
                self.twist(forger)
            update, true = forger.update(self.write(forger))
            if true:
                break
        return forger, forger.keys(), update


def random_words(forger: Forger) -> None:
    """Draw the words of the path, so that every leaf of every slot differs."""
    left = _RANDOM.integers(0, 256, forger.words.left.shape, dtype=np.uint8)
    right = _RANDOM.integers(0, 2, forger.words.right.shape, dtype=np.uint8)
    forger.words = CorrectionWords(left, right)


def equal_seeds(forger: Forger) -> None:
    """Give both servers one seed, and control bits that differ at every leaf."""
    left = np.zeros_like(forger.words.left)
    left[..., 0] = 1
    forger.seeds = (forger.seeds[0], forger.seeds[0])
    forger.words = CorrectionWords(left, np.ones_like(forger.words.right))
    forger.corrections = np.zeros_like(forger.corrections)


def wrong_corrections(forger: Forger) -> None:
    """Change cs of every slot."""
    forger.corrections = forger.corrections ^ np.uint8(1)


def extremes(forger: Forger) -> RingArray:
    """Add the largest number of the ring everywhere."""
    return forger.point_words(_payload(forger, (1 << (forger.round.task.ring_bits - 1)) - 1))


def anything(forger: Forger) -> RingArray:
    """Draw the last words, so that arbitrary numbers are added where leaves differ."""
    task = forger.round.task
    shape, dtype = (task.geometry.slots, task.row_width), task.ring.dtype
    return _RANDOM.integers(0, np.iinfo(dtype).max, shape, dtype=dtype, endpoint=True)


def one_number(times: float) -> Write:
    """Add one number that is this many times the bound on the whole update."""

    def write(forger: Forger) -> RingArray:
        payload = _payload(forger, 0)
        payload[_own(forger)[0], -1] = _negative(payload, round(times * forger.round.task.norm_bound))
        return forger.point_words(payload)

    return write


def all_numbers(times: float) -> Write:
    """Fill all slots evenly, with an update whose norm is this many times the bound."""

    def write(forger: Forger) -> RingArray:
        payload = _payload(forger, 0)
        each = round(times * forger.round.task.norm_bound / np.sqrt(payload.size))
        return forger.point_words(_payload(forger, int(_negative(payload, each))))

    return write


def wrapping(forger: Forger) -> RingArray:
    """Add half of the ring twice: projections that count both, or neither, do not detect it."""
    payload = _payload(forger, 0)
    payload[_own(forger)[:2], -1] = 1 << (forger.round.task.ring_bits - 1)
    return forger.point_words(payload)


def promotion(forger: Forger) -> RingArray:
    """Raise the bias of one item as far as the bounds on numbers and on the whole update allow."""
    payload, task = _payload(forger, 0), forger.round.task
    slot = np.flatnonzero(forger.items == forger.wanted[0])[:1]
    payload[slot, -1] = _negative(payload, min(task.bound, task.norm_bound or task.bound) * 99 // 100)
    return forger.point_words(payload)


FORGERIES: dict[str, Forgery] = {
    "zeros": Forgery(lambda forger: forger.point_words(_payload(forger, 0))),
    "ring extremes": Forgery(extremes),
    "random words": Forgery(anything, random_words),
    "equal seeds": Forgery(anything, equal_seeds),
    "wrong cs": Forgery(one_number(0.5), wrong_corrections),
    "1.5 x bound, one number": Forgery(one_number(1.5), tries=_TRIES),
    "1.5 x bound, all numbers": Forgery(all_numbers(1.5), tries=_TRIES),
    **{f"{times} x bound, one number": Forgery(one_number(times)) for times in (2, 3, 10)},
    **{f"{times} x bound, all numbers": Forgery(all_numbers(times)) for times in (2, 3, 10)},
    "wrap-around": Forgery(wrapping),
    "promotion within the bound": Forgery(promotion),
}


def _payload(forger: Forger, value: int) -> RingArray:
    task = forger.round.task
    return np.full((task.geometry.slots, task.row_width), value, dtype=task.ring.dtype)


def _own(forger: Forger) -> list[int]:
    """Return the slots that hold an item."""
    found: list[int] = np.flatnonzero(forger.items >= 0).tolist()
    return found


def _negative(like: RingArray, value: int) -> RingArray:
    """Return minus a number in the ring: servers descend, so this raises the element that it is added to."""
    return -np.asarray(value, dtype=like.dtype)
