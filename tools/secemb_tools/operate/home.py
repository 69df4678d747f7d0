"""The directory of one server as `secemb init` makes it: its settings file, its keys and the hashes of its tokens."""

import hashlib
import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from secemb_party.storage.files import sync_folder, write_file
from secemb_tools.errors import OperationError
from secemb_tools.operate.certificate import fingerprint, make_identity

PLACEHOLDER_URL = "https://server1.invalid:8441"  # until `secemb pair import` has been told the real one


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where a server listens, and under which name others know it."""

    host: str  # as the other server and devices write it
    bind: str = "127.0.0.1"  # the devices' listener
    port: int = 8440
    peer_bind: str = "0.0.0.0"  # noqa: S104  (the peer channel asks for a certificate)
    peer_port: int = 8441


def settings_text(role: int, at: Addresses) -> str:
    """Return a complete settings file."""
    return "\n".join([_TOP.format(role=role, host=at.host), _devices(role, at), _peer(role, at), _rest(role)])


def _devices(role: int, at: Addresses) -> str:
    lines = [
        "[devices]                                 # the listener that devices call",
        f'host = "{at.bind}"',
        f"port = {at.port}",
        '# tls_cert = "tls/devices.crt"            # leave both out behind a proxy that ends TLS on this machine',
        '# tls_key = "secrets/devices.key"         # secret',
    ]
    if role == 0:
        lines.append("open_enrolment = false                    # true: anybody takes part without a token; demos only")
    return "\n".join([*lines, "body_seconds = 60                         # a slower upload is cut off", ""])


def _peer(role: int, at: Addresses) -> str:
    mine = [
        'cert = "tls/peer.crt"                     # this server\'s certificate; the pair file carries it',
        'key = "secrets/peer.key"                  # secret',
        f'peer_ca = "tls/server{1 - role}.crt"                # the other server\'s certificate; no other is accepted',
        "",
    ]
    if role == 0:
        mine.insert(-1, "answer_seconds = 60                       # a call to server 1 that takes longer is repeated")
        return "\n".join(
            [
                "[peer]                                    # the channel to server 1: mutual TLS and a bearer",
                f'url = "{PLACEHOLDER_URL}"       # `secemb pair import` writes the real one',
                'token_file = "secrets/peer.token"         # secret; server 1 knows its hash',
                *mine,
            ]
        )
    return "\n".join(
        [
            "[peer]                                    # the listener that server 0 calls: mutual TLS and a bearer",
            f'host = "{at.peer_bind}"',
            f"port = {at.peer_port}",
            'token_hash_file = "secrets/peer.hash"     # of server 0\'s bearer; `secemb pair import` writes it',
            *mine,
        ]
    )


def _rest(role: int) -> str:
    ticket = (
        'ticket_key_file = "task/ticket.key"       # secret; signs tickets'
        if role == 0
        else 'ticket_public_file = "task/ticket.pub"    # server 0\'s; this server checks each ticket itself'
    )
    kinds = (
        "evaluate_every = 0                        # every so many rounds, measure the model on the devices; 0: never\n"
        "survey_first = false                      # true: begin by asking how many items devices hold\n"
    )
    return _REST.format(ticket=ticket, relay="" if role == 0 else _RELAY, kinds=kinds if role == 0 else "")


_TOP = """\
# Settings of server {role} ({host}), written by `secemb init`.
#
# Relative paths start at the directory of this file. Unknown keys are refused. A variable stands above its key:
# SECEMB_LOGS__LEVEL is `level` in [logs]. Files marked "secret" are readable by their owner only, at most by the
# service's group. `secemb check` says what is missing.

role = {role}
data_dir = "data"                         # model files, shares and, unless [ledger] says otherwise, the ledger
"""

_RELAY = """
[relay]                                   # for tasks whose devices talk to server 0 alone
identity_file = "secrets/relay.key"       # secret; signs the keys that devices seal to. The task names its public half
"""

_REST = """\
[ledger]
# url = "postgresql://secemb@db.example.org/secemb"    # without it: SQLite in data_dir. Never with a password
# password_file = "secrets/ledger.password"            # secret
migrate = true                            # false: only `secemb ledger upgrade` changes the schema

[task]
file = "task/task.json"                   # made by `secemb task create`; the same on both servers
{ticket}
{relay}
[work]
threads = 2                               # sessions evaluated at the same time
queue = 64                                # sessions that may wait; the next one is told to come back
kernel_threads = 1                        # inside one evaluation; threads x kernel_threads <= cores

[operator]
token_hash_file = "secrets/operator.hash" # leave it out and there is no operator interface

[rounds]
{kinds}keep_bodies_rounds = 3                    # how many ended rounds keep what devices have sent

[logs]                                    # to stderr
level = "info"                            # debug, info, warning or error
format = "json"                           # json or text
"""


SECRET, PUBLIC, FOLDER = 0o600, 0o644, 0o700


@dataclass(frozen=True, slots=True)
class Home:
    """Names of files; `secemb.toml` refers to them by the same relative paths."""

    folder: Path

    @property
    def settings(self) -> Path:
        """Return the settings file."""
        return self.folder / "secemb.toml"

    @property
    def certificate(self) -> Path:
        """Return this server's certificate for the peer channel."""
        return self.folder / "tls" / "peer.crt"

    @property
    def key(self) -> Path:
        """Return the certificate's private key: secret."""
        return self.folder / "secrets" / "peer.key"

    @property
    def token(self) -> Path:
        """Return server 0's bearer for the peer channel: secret, on server 0 only."""
        return self.folder / "secrets" / "peer.token"

    @property
    def token_hash(self) -> Path:
        """Return the hash of that bearer, on server 1."""
        return self.folder / "secrets" / "peer.hash"

    @property
    def relay_identity(self) -> Path:
        """Return server 1's identity, which signs its relay keys: secret, on server 1 only."""
        return self.folder / "secrets" / "relay.key"

    @property
    def operator_hash(self) -> Path:
        """Return the hash of the operator's token."""
        return self.folder / "secrets" / "operator.hash"

    @property
    def task(self) -> Path:
        """Return the task: the same on both servers."""
        return self.folder / "task" / "task.json"

    @property
    def ticket_key(self) -> Path:
        """Return the key that signs tickets: secret, on server 0 only."""
        return self.folder / "task" / "ticket.key"

    @property
    def ticket_public(self) -> Path:
        """Return the key that tickets are checked with, on server 1."""
        return self.folder / "task" / "ticket.pub"

    def partner_certificate(self, role: int) -> Path:
        """Return where the certificate of the server in that role is kept."""
        return self.folder / "tls" / f"server{role}.crt"

    def make_folders(self) -> None:
        """Make the directory and what is in it, for its owner only."""
        for path in (self.folder, *(self.folder / name for name in ("tls", "secrets", "task", "data"))):
            path.mkdir(parents=True, exist_ok=True, mode=FOLDER)


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file that must not be there yet; it never has wider permissions than `mode`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise OperationError(f"{path} exists and is not overwritten; move it away first") from None
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # whatever the umask
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    sync_folder(path.parent)


@dataclass(frozen=True, slots=True)
class Installed:
    """What the operator must see once."""

    settings: Path
    fingerprint: str
    operator_token: str


def install(folder: Path, role: int, addresses: Addresses) -> Installed:
    """Make a server's directory; refuse one that has something in it."""
    home = Home(folder)
    if folder.exists() and any(folder.iterdir()):
        raise OperationError(f"{folder} is not empty; nothing is overwritten: name another directory or empty it")
    identity = make_identity(addresses.host)
    home.make_folders()
    write_new(home.key, identity.key, mode=SECRET)
    write_new(home.certificate, identity.certificate, mode=PUBLIC)
    if role == 0:
        write_new(home.token, new_token().encode() + b"\n", mode=SECRET)
    else:
        write_new(home.relay_identity, private_pem(Ed25519PrivateKey.generate()), mode=SECRET)
    operator = new_token()
    write_new(home.operator_hash, hash_line(operator), mode=SECRET)
    write_new(home.settings, settings_text(role, addresses).encode(), mode=SECRET)
    return Installed(home.settings, fingerprint(identity.certificate), operator)


def renew_certificate(folder: Path, host: str) -> str:
    """Replace key and certificate of the peer channel and return the new fingerprint."""
    home, identity = Home(folder), make_identity(host)
    if not home.key.exists():
        raise OperationError(f"there is no server in {folder}; run secemb init")
    write_file(home.key, identity.key, mode=SECRET)
    write_file(home.certificate, identity.certificate, mode=PUBLIC)
    return fingerprint(identity.certificate)


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """Return a private key as its file has it. Secret."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def new_token() -> str:
    """Return 256 random bits as text: nobody guesses it, so its plain hash is safe to store and to show."""
    return secrets.token_urlsafe(32)


def hash_line(token: str) -> bytes:
    """Return what is stored instead of a token."""
    return hashlib.sha256(token.encode()).hexdigest().encode() + b"\n"
