"""Pair files: exchanged by operators before their servers can communicate, one each way, with public keys only.

Both send the certificate of the peer channel, and the next one during a rotation. Server 1 adds its address and its
relay identity; server 0 adds the hash of its bearer token, the public key of its tickets, and the task. Nothing in a
pair file is secret, but it must arrive unaltered: the operators compare fingerprints over another channel, such as the
telephone.
"""

import hashlib
import json
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal, NotRequired, Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from typing_extensions import TypedDict

from secemb_party.storage.files import write_file
from secemb_shared.messages import TaskSpec
from secemb_tools.errors import OperationError
from secemb_tools.operate.certificate import fingerprint, grouped, grouped_hash, hosts, read_certificate
from secemb_tools.operate.directory import PUBLIC, SECRET, ServerDirectory, write_new

_LARGEST = 1 << 16
_URL_LINE = re.compile(r'^url = "https://[^"\n]*"', re.MULTILINE)  # not the database's


class Fingerprints(TypedDict):
    """The fingerprints that two operators compare; server 0 and server 1 have different keys."""

    role: int
    certificate: str
    next_certificate: NotRequired[str]
    peer_url: NotRequired[str]
    relay_key: NotRequired[str]
    bearer_hash: NotRequired[str]
    next_bearer_hash: NotRequired[str]
    ticket_key: NotRequired[str]
    task_id: NotRequired[str]


class PairFile(BaseModel):
    """One server's public keys and addresses."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["secemb/1 pair"] = "secemb/1 pair"
    role: Literal[0, 1]
    certificate: Annotated[str, Field(max_length=10_000)]
    next_certificate: Annotated[str, Field(max_length=10_000)] | None = None
    peer_url: Annotated[str, Field(pattern=r"^https://[^/?#@\s\"\\]+:[0-9]{1,5}$", max_length=300)] | None = None
    relay_key: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    token_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    next_token_sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    ticket_public: Annotated[str, Field(max_length=1000)] | None = None
    task: Annotated[str, Field(max_length=4000)] | None = None

    @model_validator(mode="after")
    def _belongs_to_its_role(self) -> Self:
        if (self.role == 1) != (self.peer_url is not None) or (self.role == 0) != (self.token_sha256 is not None):
            raise ValueError("server 1 must give its address, and server 0 the hash of its bearer token")
        if self.role == 0 and self.relay_key is not None:
            raise ValueError("only server 1 has a relay identity")
        return self


def export_pair(folder: Path) -> PairFile:
    """Return the pair file of the server in this directory."""
    home, settings = ServerDirectory(folder), _settings(folder)
    role, certificate = settings["role"], home.certificate.read_bytes()
    if role == 1:
        return PairFile(
            role=1,
            certificate=certificate.decode(),
            next_certificate=_text_of(home.next_certificate),
            peer_url=_peer_url(settings, certificate),
            relay_key=public_identity(home.relay_identity),
        )
    if not home.task.exists() or not home.ticket_key.exists():
        raise OperationError(
            f"{home.task} and {home.ticket_key} must both exist; run secemb task create and copy its server0 files"
        )
    return PairFile(
        role=0,
        certificate=certificate.decode(),
        next_certificate=_text_of(home.next_certificate),
        token_sha256=_hash_of(home.token),
        next_token_sha256=_hash_of(home.next_token) if home.next_token.exists() else None,
        ticket_public=_public_of(home.ticket_key),
        task=_task_text(home.task.read_bytes().strip()),
    )


def import_pair(folder: Path, path: Path, *, replace: bool) -> PairFile:
    """Store the other server's keys and addresses; those stored before must be the same unless `replace`."""
    home, settings, pair = ServerDirectory(folder), _settings(folder), read_pair(path)
    if pair.role == settings["role"]:
        raise OperationError(f"{path} comes from a server {pair.role} like this one; import the other server's file")
    _check(pair)
    put = _replace if replace else _keep_or_write
    # While the other server is rotating its keys, both the current and the next ones are accepted.
    put(home.peer_certificate(pair.role), (pair.certificate + (pair.next_certificate or "")).encode(), PUBLIC)
    if pair.role == 1:
        _write_url(home.settings, pair.peer_url or "")
        return pair
    hashes = [one for one in (pair.token_sha256, pair.next_token_sha256) if one is not None]
    put(home.token_hash, "".join(f"{one}\n" for one in hashes).encode(), SECRET)
    if pair.ticket_public is not None:
        put(home.ticket_public, pair.ticket_public.encode(), PUBLIC)
    if pair.task is not None:
        put(home.task, pair.task.encode(), PUBLIC)
    return pair


def read_pair(path: Path) -> PairFile:
    """Return the content of a pair file."""
    data = path.read_bytes()
    try:
        if len(data) > _LARGEST:
            raise ValueError
        return PairFile.model_validate_json(data)
    except (ValidationError, ValueError):
        raise OperationError(f"{path} is not a pair file; ask the other operator to run secemb pair export") from None


def fingerprints(pair: PairFile) -> Fingerprints:
    """Return the fingerprints for the operators."""
    facts: Fingerprints = {"role": pair.role, "certificate": fingerprint(pair.certificate.encode())}
    if pair.next_certificate is not None:
        facts["next_certificate"] = fingerprint(pair.next_certificate.encode())
    if pair.peer_url is not None:
        facts["peer_url"] = pair.peer_url
    if pair.relay_key is not None:
        facts["relay_key"] = grouped(bytes.fromhex(pair.relay_key))
    if pair.token_sha256 is not None:
        facts["bearer_hash"] = grouped(bytes.fromhex(pair.token_sha256))
    if pair.next_token_sha256 is not None:
        facts["next_bearer_hash"] = grouped(bytes.fromhex(pair.next_token_sha256))
    if pair.ticket_public is not None:
        facts["ticket_key"] = grouped_hash(pair.ticket_public.encode())
    if pair.task is not None:
        facts["task_id"] = grouped(TaskSpec.decode(pair.task.encode()).task_id)
    return facts


def dump(pair: PairFile) -> str:
    """Return the text of a pair file."""
    return json.dumps(pair.model_dump(exclude_none=True), indent=2) + "\n"


def _check(pair: PairFile) -> None:
    """Refuse keys that this server could not use, before anything is written."""
    for certificate in filter(None, (pair.certificate, pair.next_certificate)):
        read_certificate(certificate.encode())
    if pair.task is not None:
        TaskSpec.decode(pair.task.encode())
    if pair.ticket_public is not None:
        try:
            load_pem_public_key(pair.ticket_public.encode())
        except (ValueError, UnsupportedAlgorithm):
            raise OperationError("the ticket key is not a public key; ask for a new pair file") from None


def _settings(folder: Path) -> dict[str, Any]:
    """Read the settings as plain TOML: before pairing they name files that do not exist yet."""
    path = ServerDirectory(folder).settings
    if not path.is_file():
        raise OperationError(f"{path} not found; run secemb init, or name the directory that it created")
    try:
        settings = tomllib.loads(path.read_text())
    except ValueError as error:
        raise OperationError(f"{path} is not TOML: {error}") from None
    if settings.get("role") not in (0, 1):
        raise OperationError(f"{path} has no role; it must say role = 0 or role = 1")
    return settings


def _peer_url(settings: dict[str, Any], certificate: bytes) -> str:
    names, port = sorted(hosts(read_certificate(certificate))), settings.get("peer", {}).get("port")
    if not names or not isinstance(port, int):
        raise OperationError("the certificate names no host, or [peer] has no port; run secemb init again")
    host = f"[{names[0]}]" if ":" in names[0] else names[0]
    return f"https://{host}:{port}"


def _text_of(path: Path) -> str | None:
    return path.read_text() if path.exists() else None


def _hash_of(path: Path) -> str:
    return hashlib.sha256(path.read_text().strip().encode()).hexdigest()


def _public_of(path: Path) -> str:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, UnsupportedAlgorithm):
        raise OperationError(f"{path} is not a private key; copy the one that secemb task create wrote") from None
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def public_identity(path: Path) -> str | None:
    """Return the public half of a server's identity, if it has one."""
    if not path.exists():
        return None
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, UnsupportedAlgorithm):
        raise OperationError(f"{path} is not a private key; restore the one that secemb init created") from None
    return key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw).hex()


def _task_text(data: bytes) -> str:
    return TaskSpec.decode(data).encode().decode()


def _keep_or_write(path: Path, content: bytes, mode: int) -> None:
    if not path.exists():
        write_new(path, content, mode=mode)
    elif path.read_bytes().strip() != content.strip():
        raise OperationError(f"{path} has different content; if the other server changed it on purpose, add --replace")


def _replace(path: Path, content: bytes, mode: int) -> None:
    write_file(path, content, mode=mode)


def _write_url(path: Path, url: str) -> None:
    text = path.read_text()
    if len(_URL_LINE.findall(text)) != 1:
        raise OperationError(
            f'{path} was edited and cannot be updated automatically; set url = "{url}" in [peer] by hand'
        )
    write_file(path, _URL_LINE.sub(f'url = "{url}"', text).encode(), mode=SECRET)
