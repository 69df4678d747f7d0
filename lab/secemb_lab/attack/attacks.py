"""The attacks: their clients, actions and expected outcomes."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from secemb_lab.attack.clients import (
    Act,
    Target,
    forging,
    frame,
    keep_silent,
    lie,
    read_rows,
    send_headers,
    stay_idle,
    stop_half_way,
    with_tokens,
    withhold_bodies,
)
from secemb_lab.attack.forgeries import FORGERIES

SEATS = 2  # of a round that are not for honest devices
TOKENS = 80  # of all attackers
_MANY, _OTHERS, _SILENT, _FLOOD = range(10, 40), range(10), range(40, 42), range(40, TOKENS)
IDLE = 1000  # connections to each server
HEADERS = (10, 300)  # connections to each server, and megabytes in total
READERS = 4

_ZEROS = forging(FORGERIES["zeros"])
REJECTED, WITHIN, FIGURES, LOAD = "rejected", "within the bound", "figures", "load"
Hostile: TypeAlias = Callable[[Target], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """One attack: hostile clients that run alongside honest devices."""

    name: str
    kind: str  # the expected outcome
    run: Hostile
    evaluate_every: int = 0
    survey_first: bool = False
    slow: bool = False  # rounds wait for deadlines, so there are fewer of them

    @property
    def setting(self) -> tuple[int, bool]:
        """Return the required settings of the servers."""
        return self.evaluate_every, self.survey_first


def _seats(act: Act, count: int = SEATS, tokens: range = _MANY, step: str = "join") -> Hostile:
    return partial(with_tokens, act=act, count=count, tokens=tokens, step=step)


async def _beside(target: Target, *, attack: Hostile, seats: int) -> None:
    """Run an attack that takes this many seats, and fill the remaining seats with updates of zeros."""
    await asyncio.gather(_seats(_ZEROS, SEATS - seats)(target), attack(target))


def _load(name: str, attack: Hostile, seats: int = 0) -> Attack:
    return Attack(name=name, kind=LOAD, run=partial(_beside, attack=attack, seats=seats))


def _forged(name: str) -> Attack:
    within = name.startswith(("1.5", "promotion"))
    return Attack(name=name, kind=WITHIN if within else REJECTED, run=_seats(forging(FORGERIES[name])))


NONE = Attack(name="none", kind=LOAD, run=_seats(_ZEROS))
PROMOTION = "promotion within the bound"
ATTACKS: dict[str, Attack] = {
    one.name: one
    for one in (
        NONE,
        *(_forged(name) for name in FORGERIES if name != "zeros"),
        Attack(name="false evaluations", kind=FIGURES, run=_seats(lie), evaluate_every=2),
        Attack(name="false surveys", kind=FIGURES, run=_seats(lie), survey_first=True),
        Attack(name="framing", kind=LOAD, run=_seats(frame)),
        _load("requests without bodies", _seats(withhold_bodies, 1, _OTHERS), seats=1),
        _load("idle connections", partial(stay_idle, connections=IDLE)),
        _load("endless headers", partial(send_headers, connections=HEADERS[0], megabytes=HEADERS[1])),
        _load("floods of reads", _seats(read_rows, READERS, _OTHERS, step="read")),
        Attack(name="silent tokens", kind=LOAD, run=_seats(keep_silent, tokens=_SILENT), slow=True),
        Attack(name="tokens that stop half way", kind=LOAD, run=_seats(stop_half_way, tokens=_SILENT), slow=True),
        Attack(name="a flood of seats", kind=LOAD, run=_seats(keep_silent, len(_FLOOD), _FLOOD), slow=True),
    )
}
