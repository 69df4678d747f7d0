"""Enrolment tokens in server 0's ledger, which stores their hashes; a token itself is printed once and not stored."""

import hashlib
import time
from datetime import UTC, datetime

from typing_extensions import TypedDict

from secemb_party.ledger import Ledger, Token
from secemb_party.settings import Settings
from secemb_tools.errors import OperationError
from secemb_tools.operate.directory import new_token


class NewToken(TypedDict):
    """A token, on the one occasion that it is shown."""

    name: str
    token: str


class TokenRow(TypedDict):
    """What is known about a token afterwards."""

    name: str
    hash: str  # its first digits
    created: str | None
    revoked: str | None


async def create(settings: Settings, names: list[str]) -> list[NewToken]:
    """Add a token for each name, or none at all, and return them: they cannot be shown again."""
    made = {new_token(): name for name in names}
    async with await _open(settings) as ledger:
        hashes = {hashlib.sha256(token.encode()).digest(): name for token, name in made.items()}
        await ledger.add_tokens(hashes, time.time())
    return [{"name": name, "token": token} for token, name in made.items()]


async def list_all(settings: Settings) -> list[TokenRow]:
    """Return every token's name, hash and dates."""
    async with await _open(settings) as ledger:
        return [_row(token) for token in await ledger.tokens()]


async def revoke(settings: Settings, name: str) -> TokenRow:
    """Revoke a token; a session that has already joined stays in its round."""
    async with await _open(settings) as ledger:
        return _row(await ledger.revoke_token(name, time.time()))


async def _open(settings: Settings) -> Ledger:
    if settings.role != 0:
        raise OperationError("enrolment tokens are server 0's; use its settings file")
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return await Ledger.open(settings.ledger_url(), migrate=settings.ledger.migrate)


def _row(token: Token) -> TokenRow:
    return {
        "name": token.name,
        "hash": token.token_hash.hex()[:16],
        "created": _when(token.created_at),
        "revoked": _when(token.revoked_at),
    }


def _when(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
