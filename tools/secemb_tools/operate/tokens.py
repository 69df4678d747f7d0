"""Enrolment tokens in server 0's ledger, which stores their hashes; a token itself is printed once and not stored.

Many tokens are added in batches, each in its own transaction, so that a running server keeps serving devices. Batches
added before a failure remain, and a second run continues.
"""

import csv
import re
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from typing_extensions import TypedDict

from secemb_party.ledger import Added, Ledger, Token
from secemb_party.settings import Settings
from secemb_server0.enrolment import Enrolled, Enrolment, WantedToken
from secemb_tools.errors import OperationError
from secemb_tools.operate.operator_tokens import DAY, local_order, open_ledger, when

BATCH = 2000
_HASH = re.compile(r"[0-9a-f]{64}")
_COLUMNS = ("name", "sha256")
_LONGEST_NAME = 100
Told = Callable[[int], None]  # called with the number of tokens added


class NewToken(TypedDict):
    """A new token, which is shown only once."""

    name: str
    token: str


class ImportedTokens(TypedDict):
    """The result of importing the hashes in a file."""

    added: int
    unchanged: int  # they already existed


class TokenRow(TypedDict):
    """The stored facts about a token."""

    name: str
    hash: str  # its first digits
    state: str  # active, expired, revoked or suspended
    joined: int  # sessions of the device, with any of its tokens
    completed: int  # sessions that were part of a sum
    refused: int  # messages that did not match their round
    rejected: int  # sessions that failed a check between the servers
    problem: str | None  # the last refusal or rejection
    created: str | None
    expires: str | None
    revoked: str | None


def _nothing(_count: int) -> None:
    """Ignore progress."""


async def create(
    settings: Settings, names: Sequence[str], *, days: int | None = None, skip: bool = False, tell: Told = _nothing
) -> AsyncIterator[list[NewToken]]:
    """Add a token for each name and yield them, a batch at a time: they cannot be shown again.

    If a name is in use nothing is added; with `skip` the other names get their tokens.
    """
    check_names(names)
    expires = _expiry(days)
    async with _enrolment(settings) as enrolment:
        if not skip:
            await _refuse_used(enrolment, names)
        for batch in _batches(names):
            made = await enrolment.create([WantedToken(name, expires_at=expires) for name in batch], local_order())
            tell(len(batch))
            yield [{"name": one.name, "token": one.token} for one in made if one.token is not None]


async def create_all(settings: Settings, names: Sequence[str], *, days: int | None = None) -> list[NewToken]:
    """Add a token for each name and return them all."""
    return [one async for batch in create(settings, names, days=days) for one in batch]


async def import_hashes(settings: Settings, wanted: Sequence[WantedToken], *, tell: Told = _nothing) -> ImportedTokens:
    """Add tokens that were generated elsewhere, by their hashes; adding the same again has no effect."""
    counts: ImportedTokens = {"added": 0, "unchanged": 0}
    async with _enrolment(settings) as enrolment:
        for batch in _batches(wanted):
            for one in await enrolment.create(batch, local_order()):
                _count(counts, one)
            tell(len(batch))
    return counts


async def replace(settings: Settings, name: str, *, days: int | None, overlap: float) -> NewToken:
    """Create a device's next token."""
    async with _enrolment(settings) as enrolment:
        made = await enrolment.replace(WantedToken(name, expires_at=_expiry(days)), local_order(), overlap=overlap)
    return {"name": name, "token": made.token or ""}


async def list_some(settings: Settings, *, after: str, limit: int) -> list[TokenRow]:
    """Return the name, hash, state, counts and dates of tokens, in the order of names."""
    async with _ledger(settings) as ledger:
        # After every token of that name, whatever its generation.
        return [_row(token) for token in await ledger.tokens(after=(after, 2**53), limit=limit)]


async def revoke(settings: Settings, name: str) -> TokenRow:
    """Revoke a device's tokens; a session that has already joined stays in its round."""
    async with _ledger(settings) as ledger:
        found = await ledger.find_device(name)
        await ledger.revoke_tokens([found], local_order(), time.time())
        return _row((await ledger.tokens_of([found]))[-1])


async def suspend(settings: Settings, name: str, reason: str | None) -> TokenRow:
    """Let a device neither join nor read for now; a session that has already joined stays in its round."""
    async with _ledger(settings) as ledger:
        found = await ledger.find_device(name)
        await ledger.suspend_devices([found], local_order(reason), time.time())
        return _row((await ledger.tokens_of([found]))[-1])


async def resume(settings: Settings, name: str) -> TokenRow:
    """Let a suspended device take part again."""
    async with _ledger(settings) as ledger:
        found = await ledger.find_device(name)
        await ledger.resume_devices([found], local_order(), time.time())
        return _row((await ledger.tokens_of([found]))[-1])


def read_names(lines: Iterable[str]) -> list[str]:
    """Return the names in a file, one on each line; empty lines are skipped."""
    return [name for line in lines if (name := line.strip())]


def read_hashes(lines: Iterable[str], *, days: int | None) -> list[WantedToken]:
    """Return the tokens in a CSV file with the columns name and sha256; refuse the whole file if a line is invalid."""
    reader, expires = csv.DictReader(lines, strict=True), _expiry(days)
    if not set(_COLUMNS) <= set(reader.fieldnames or ()):
        raise OperationError(f"the first line must name the columns {' and '.join(_COLUMNS)}")
    found = []
    try:
        for row in reader:
            name, digits = ((row[column] or "").strip() for column in _COLUMNS)
            if not _HASH.fullmatch(digits):
                raise OperationError(
                    f"line {reader.line_num}: sha256 must have 64 hexadecimal digits in lower case; nothing was added"
                )
            found.append(WantedToken(name, bytes.fromhex(digits), expires))
    except csv.Error as error:
        raise OperationError(f"line {reader.line_num}: {error}; nothing was added") from None
    check_names([one.name for one in found])
    return found


def check_names(names: Sequence[str]) -> None:
    """Refuse names that cannot be used, before anything is added."""
    for name in names:
        if not 1 <= len(name) <= _LONGEST_NAME or not name.isprintable() or name != name.strip():
            raise OperationError(
                f"{name[:_LONGEST_NAME]!r} is not a name: use 1 to {_LONGEST_NAME} printable characters, without "
                "spaces around them; nothing was added"
            )
    if len(set(names)) < len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise OperationError(f"the name {twice} is given twice; nothing was added")


async def _refuse_used(enrolment: Enrolment, names: Sequence[str]) -> None:
    for batch in _batches(names):
        if used := await enrolment.find(batch):
            raise OperationError(
                f"a token exists for {used[0].name}, and names cannot be reused, even after revocation; nothing "
                "was added. --skip-existing skips such names; `secemb token replace` gives a device its next "
                "token"
            )


def _count(counts: ImportedTokens, one: Enrolled) -> None:
    if one.outcome not in (Added.ADDED, Added.SAME):
        words = "has another token" if one.outcome is Added.NAME_TAKEN else "has the same hash as another device"
        raise OperationError(
            f"{one.name} {words}; correct the file and run the command again; tokens that were already added "
            "are skipped"
        )
    counts["added" if one.outcome is Added.ADDED else "unchanged"] += 1


def _batches(all_: Sequence[str] | Sequence[WantedToken]) -> Iterator[Any]:
    return (all_[first : first + BATCH] for first in range(0, len(all_), BATCH))


def _expiry(days: int | None) -> float | None:
    return None if days is None else time.time() + days * DAY


@asynccontextmanager
async def _enrolment(settings: Settings) -> AsyncIterator[Enrolment]:
    async with _ledger(settings) as ledger:
        yield Enrolment(ledger, time.time)


@asynccontextmanager
async def _ledger(settings: Settings) -> AsyncIterator[Ledger]:
    if settings.role != 0:
        raise OperationError("only server 0 has enrolment tokens; use its settings file")
    async with await open_ledger(settings) as ledger:
        yield ledger


def _row(token: Token) -> TokenRow:
    return {
        "name": token.name,
        "hash": token.token_hash.hex()[:16],
        "state": token.state(time.time()).value,
        "joined": token.conduct.joined,
        "completed": token.conduct.completed,
        "refused": token.conduct.refused,
        "rejected": token.conduct.rejected,
        "problem": token.conduct.problem,
        "created": when(token.created_at),
        "expires": when(token.expires_at),
        "revoked": when(token.revoked_at),
    }
