"""Operators: who may view this server, who may make changes, and which programs may enrol devices.

One file, which is replaced as a whole, holds the SHA-256 of their tokens. Commands can change it while the server runs.
It is not in the ledger: a new server has its first token before it has a database, and restoring a backup of the ledger
must not restore a revoked token.
"""

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from secemb_party.errors import ForbiddenError, OperatorTokenError, SettingsError, UnauthorizedError
from secemb_party.storage.files import locked, write_file

LONGEST_NAME = 100
_UNKNOWN = "this is not an active operator token for this server; create one with `secemb operator add`"


class OperatorRole(StrEnum):
    """What an operator token allows."""

    READ_ONLY = "read-only"  # see everything, change nothing
    ADMIN = "admin"  # everything
    ENROL = "enrol"  # create, list and revoke the tokens of devices, nothing else

    def includes(self, needed: "OperatorRole") -> bool:
        """Return whether this role includes another one."""
        return self in (needed, OperatorRole.ADMIN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One operator token, without the token."""

    name: str
    role: OperatorRole
    token_hash: str = field(repr=False)  # 64 hexadecimal digits
    created_at: float
    expires_at: float | None = None
    revoked_at: float | None = None

    def active(self, now: float) -> bool:
        """Return whether the token is still valid."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class Order:
    """A requested change: who asked for it, by the name of the token, and why."""

    by: str
    reason: str | None = None


class Operators:
    """All operator tokens of one server."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._held: list[Operator] = []
        self._reload()

    def __repr__(self) -> str:
        return f"Operators({str(self._path)!r})"

    def all(self) -> list[Operator]:
        """Return all tokens, oldest first, including revoked and expired ones."""
        self._reload()
        return list(self._held)

    def named(self, name: str, now: float) -> Operator | None:
        """Return the operator with this name, if the token is active."""
        return next((one for one in self.all() if one.name == name and one.active(now)), None)

    def find(self, token: str, now: float) -> Operator | None:
        """Return the operator with this active token; comparing hashes reveals nothing about a token."""
        shown = hash_of(token)
        return next((one for one in self.all() if one.token_hash == shown and one.active(now)), None)

    def require(self, token: str, needed: OperatorRole, now: float) -> Operator:
        """Return the operator with this token; raise unless it is active and has the required role."""
        found = self.find(token, now)
        if found is None:
            raise UnauthorizedError(_UNKNOWN)
        if not found.role.includes(needed):
            raise ForbiddenError(
                f"this request needs a token with the role {needed}, but this token has the role {found.role}"
            )
        return found

    def add(self, made: Operator) -> None:
        """Add a token under a name that was never used here, so that the record of actions stays unambiguous."""
        if not 1 <= len(made.name) <= LONGEST_NAME or not made.name.isprintable() or made.name != made.name.strip():
            raise OperatorTokenError(
                f"a name must be 1 to {LONGEST_NAME} printable characters, without leading or trailing spaces"
            )
        with self._locked():
            if any(one.name == made.name for one in self._held):
                raise OperatorTokenError(
                    f"a token named {made.name} already exists, and names cannot be reused even after revocation;"
                    " choose another name"
                )
            self._write([*self._held, made])

    def revoke(self, name: str, now: float) -> Operator:
        """Revoke a token, effective from the next request."""
        with self._locked():
            found = next((one for one in self._held if one.name == name), None)
            if found is None:
                raise OperatorTokenError(f"no operator token is named {name}; list them with `secemb operator list`")
            revoked = found if found.revoked_at is not None else replace(found, revoked_at=now)
            self._write([revoked if one is found else one for one in self._held])
        return revoked

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with locked(self._path):
            self._reload()
            yield

    def _reload(self) -> None:
        found = self._path.stat()
        seen = (found.st_mtime_ns, found.st_size, found.st_ino)
        if seen != self._seen:
            self._held, self._seen = _read(self._path), seen

    def _write(self, operators: list[Operator]) -> None:
        before = self._path.stat()
        write_file(self._path, encode(operators), mode=stat.S_IMODE(before.st_mode))
        if os.geteuid() == 0:  # the command may run as root, but the server as its own user
            os.chown(self._path, before.st_uid, before.st_gid)
        self._reload()


def encode(operators: list[Operator]) -> bytes:
    """Return the operators in the file."""
    return json.dumps([asdict(one) for one in operators], indent=1).encode("ascii") + b"\n"


def new_token() -> str:
    """Return 256 random bits as text: they cannot be guessed, so a plain hash is safe to store and show."""
    return secrets.token_urlsafe(32)


def hash_of(token: str) -> str:
    """Return the hash that is stored instead of a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _read(path: Path) -> list[Operator]:
    try:
        return [_operator(one) for one in json.loads(path.read_text("ascii"))]
    except (ValueError, KeyError, TypeError):
        raise SettingsError(
            f"{path} is corrupted; restore it, or replace its contents with [] and run `secemb operator add`"
        ) from None


def _operator(record: dict[str, Any]) -> Operator:
    return Operator(**record | {"role": OperatorRole(record["role"])})
