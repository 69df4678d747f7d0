"""Enrolment tokens in server 0's ledger; a token itself exists only on the screen of whoever made it."""

import hashlib
import time
from datetime import UTC, datetime

from secemb_party.ledger import Ledger, Token
from secemb_party.settings import Settings
from secemb_tools.errors import OperationError
from secemb_tools.operate.home import new_token

Row = dict[str, object]


async def create(settings: Settings, names: list[str]) -> list[Row]:
    """Add a token for each name, or none at all, and return them: the only time that they can be seen."""
    made = {new_token(): name for name in names}
    async with await _open(settings) as ledger:
        hashes = {hashlib.sha256(token.encode()).digest(): name for token, name in made.items()}
        await ledger.add_tokens(hashes, time.time())
    return [{"name": name, "token": token} for token, name in made.items()]


async def list_all(settings: Settings) -> list[Row]:
    """Return every token without the token."""
    async with await _open(settings) as ledger:
        return [_row(token) for token in await ledger.tokens()]


async def revoke(settings: Settings, name: str) -> Row:
    """Let a token open the door no more; a session that has joined already stays in its round."""
    async with await _open(settings) as ledger:
        return _row(await ledger.revoke_token(name, time.time()))


async def _open(settings: Settings) -> Ledger:
    if settings.role != 0:
        raise OperationError("enrolment tokens are server 0's; use its settings file")
    settings.data_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    return await Ledger.open(settings.ledger_url(), migrate=settings.ledger.migrate)


def _row(token: Token) -> Row:
    return {
        "name": token.name,
        "hash": token.token_hash.hex()[:16],
        "created": _when(token.created_at),
        "revoked": _when(token.revoked_at),
    }


def _when(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
