"""Enrolment: which devices may take part. Tokens are generated here, shown once, and stored as hashes.

A device is known by the name that the operator or the app's backend gives it. A repeated call creates nothing twice.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from secemb_party.ledger import Added, Ledger, NewToken, Token
from secemb_party.operators import Order, new_token
from secemb_party.parts import Clock

OVERLAP_SECONDS = 7 * 86_400  # that an old token stays valid after replacement: devices may be off for days


@dataclass(frozen=True, slots=True)
class WantedToken:
    """A token for a device: one that the caller generated, by its hash, or a new one."""

    name: str
    token_hash: bytes | None = field(default=None, repr=False)
    expires_at: float | None = None


@dataclass(frozen=True, slots=True)
class Enrolled:
    """The outcome; the token is included if it was generated here."""

    name: str
    outcome: Added
    token: str | None = field(default=None, repr=False)


class Enrolment:
    """The enrolment tokens of one server 0."""

    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger, self._clock = ledger, clock

    async def create(self, wanted: Sequence[WantedToken], order: Order) -> list[Enrolled]:
        """Add the first token of each device; a device that already has a token keeps it."""
        drawn = [_draw(one) for one in wanted]
        outcomes = await self._ledger.add_tokens([new for _, new in drawn], order, self._clock())
        return [_shown(*one) for one in zip(drawn, outcomes, strict=True)]

    async def replace(self, wanted: WantedToken, order: Order, *, overlap: float = OVERLAP_SECONDS) -> Enrolled:
        """Give a device its next token; the previous one remains valid for at most `overlap` seconds."""
        drawn = _draw(wanted)
        return _shown(drawn, await self._ledger.replace_token(drawn[1], order, self._clock(), overlap=overlap))

    async def revoke(self, names: Sequence[str], order: Order) -> int:
        """Permanently revoke all tokens of devices and return how many devices had one; joined sessions stay."""
        return await self._ledger.revoke_tokens(names, order, self._clock())

    async def suspend(self, names: Sequence[str], order: Order) -> int:
        """Suspend devices, which can then neither join nor read, and return how many; joined sessions stay."""
        return await self._ledger.suspend_devices(names, order, self._clock())

    async def resume(self, names: Sequence[str], order: Order) -> int:
        """Let suspended devices take part again, and return how many."""
        return await self._ledger.resume_devices(names, order, self._clock())

    async def find(self, names: Sequence[str]) -> list[Token]:
        """Return the tokens of devices."""
        return await self._ledger.tokens_of(names)


def _draw(wanted: WantedToken) -> tuple[str | None, NewToken]:
    if wanted.token_hash is not None:
        return None, NewToken(wanted.name, wanted.token_hash, wanted.expires_at)
    token = new_token()
    return token, NewToken(wanted.name, hashlib.sha256(token.encode()).digest(), wanted.expires_at)


def _shown(drawn: tuple[str | None, NewToken], outcome: Added) -> Enrolled:
    token, new = drawn
    return Enrolled(new.name, outcome, token if outcome is Added.ADDED else None)
