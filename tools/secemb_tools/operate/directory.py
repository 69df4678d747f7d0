"""The directory of a server, as `secemb init` creates it: settings, keys and the hashes of tokens."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from secemb_party.operators import Operator, OperatorRole, encode, hash_of, new_token
from secemb_party.storage.files import sync_folder
from secemb_tools.errors import OperationError
from secemb_tools.operate.certificate import fingerprint, make_identity

FIRST_OPERATOR = "first"  # the name of the token that `secemb init` prints
PLACEHOLDER_URL = "https://server1.invalid:8441"  # until `secemb pair import` writes the real one


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """Where a server listens, and how others reach it."""

    host: str  # as the other server and devices address it
    bind: str = "127.0.0.1"  # the devices' listener
    port: int = 8440
    peer_bind: str = "0.0.0.0"  # noqa: S104  (the peer channel requires a certificate)
    peer_port: int = 8441
    operator_port: int = 8442
    metrics_port: int = 8443


def settings_text(role: int, at: Addresses) -> str:
    """Return a complete settings file."""
    return "\n".join([_TOP.format(role=role, host=at.host), _devices(role, at), _peer(role, at), _rest(role, at)])


def _devices(role: int, at: Addresses) -> str:
    lines = [
        "[devices]                                 # where devices connect",
        f'host = "{at.bind}"',
        f"port = {at.port}",
        '# tls_cert = "tls/devices.crt"            # omit both behind a proxy that terminates TLS on this machine',
        '# tls_key = "secrets/devices.key"         # secret',
    ]
    if role == 0:
        lines.append("open_enrolment = false                    # true: devices need no token; for demos only")
    return "\n".join([*lines, "body_seconds = 60                         # slower uploads are cut off", ""])


def _peer(role: int, at: Addresses) -> str:
    mine = [
        'cert = "tls/peer.crt"                     # this server\'s certificate; it is in the pair file',
        'key = "secrets/peer.key"                  # secret',
        f'peer_ca = "tls/server{1 - role}.crt"                # the other server\'s certificate; no other is accepted',
        "",
    ]
    if role == 0:
        mine.insert(-1, "answer_seconds = 60                       # slower calls to server 1 are retried")
        return "\n".join(
            [
                "[peer]                                    # the channel to server 1: mutual TLS and a bearer token",
                f'url = "{PLACEHOLDER_URL}"       # `secemb pair import` writes the real one',
                'token_file = "secrets/peer.token"         # secret; server 1 has its hash',
                *mine,
            ]
        )
    return "\n".join(
        [
            "[peer]                                    # where server 0 connects: mutual TLS and a bearer token",
            f'host = "{at.peer_bind}"',
            f"port = {at.peer_port}",
            'token_hash_file = "secrets/peer.hash"     # of server 0\'s token; `secemb pair import` writes it',
            *mine,
        ]
    )


def _rest(role: int, at: Addresses) -> str:
    ticket = (
        'ticket_key_file = "task/ticket.key"       # secret; signs tickets\n'
        'identity_file = "secrets/identity.key"    # secret; signs the successor of a task that has its public half'
        if role == 0
        else 'ticket_public_file = "task/ticket.pub"    # server 0\'s; this server checks each ticket itself'
    )
    kinds = (
        "evaluate_every = 0                        # measure the model on devices every n rounds; 0: never\n"
        "survey_first = false                      # true: first ask how many items devices have\n"
        "joins_per_second = 20                     # how many devices a second are asked to come back\n"
        "seal_share = 0.9                          # seal when this share of the sessions is complete, after a grace\n"
    )
    return _REST.format(
        ticket=ticket,
        relay="" if role == 0 else _RELAY,
        kinds=kinds if role == 0 else "",
        operator_port=at.operator_port,
        metrics_port=at.metrics_port,
    )


_TOP = """\
# Settings of server {role} ({host}), written by `secemb init`.
#
# Relative paths start at the directory of this file. Unknown keys are refused. A variable overrides its key:
# SECEMB_LOGS__LEVEL is `level` in [logs]. Files marked "secret" must be readable by their owner only, at most by the
# service's group. `secemb check` finds what is missing.

role = {role}
data_dir = "data"                         # model files, shares and, unless [ledger] has a url, the ledger
"""

_RELAY = """
[relay]                                   # for tasks whose devices send through server 0
identity_file = "secrets/relay.key"       # secret; signs the keys that devices encrypt to. The task has its public half
"""

_REST = """\
[ledger]
# url = "postgresql://secemb@db.example.org/secemb"    # without it: SQLite in data_dir. Never with a password
# password_file = "secrets/ledger.password"            # secret
migrate = true                            # false: only `secemb ledger upgrade` changes the schema

[task]
file = "task/task.json"                   # from `secemb task create`; the same on both servers
# catalogue_file = "catalogue.csv"        # ids and titles; without it: catalogue.csv beside the task, if it has one
{ticket}
{relay}
[work]
threads = 2                               # sessions evaluated at the same time
memory_bytes = 67108864                   # of devices' messages in memory; further devices must retry later
kernel_threads = 1                        # inside one evaluation; threads x kernel_threads <= cores

[operator]                                # the page and the operator API
host = "127.0.0.1"
port = {operator_port}
# tls_cert = "tls/operator.crt"           # set both if operators connect from other machines
# tls_key = "secrets/operator.key"        # secret
tokens_file = "secrets/operators.json"    # `secemb operator` changes it; omit it to disable the operator interface

[metrics]                                 # where Prometheus connects; without a password
host = "127.0.0.1"
port = {metrics_port}

[rounds]
{kinds}keep_bodies_rounds = 3                    # rounds whose uploads are kept after they end
keep_rows_days = 90                       # days for which the digests of a session are kept after its round
# keep_tasks = 1                          # how many earlier tasks keep their model files and sessions; without it: all

[storage]
min_free_bytes = 268435456                # with less free space in data_dir no new session begins

[logs]                                    # to stderr
level = "info"                            # debug, info, warning or error
format = "json"                           # json or text
"""


SECRET, PUBLIC, FOLDER = 0o600, 0o644, 0o700


@dataclass(frozen=True, slots=True)
class ServerDirectory:
    """File names; `secemb.toml` refers to them by the same relative paths."""

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
        """Return server 0's bearer token for the peer channel: secret, on server 0 only."""
        return self.folder / "secrets" / "peer.token"

    @property
    def next_certificate(self) -> Path:
        """Return the next certificate, during a rotation."""
        return self.folder / "tls" / "peer.next.crt"

    @property
    def next_key(self) -> Path:
        """Return its private key: secret."""
        return self.folder / "secrets" / "peer.next.key"

    @property
    def next_token(self) -> Path:
        """Return the next bearer token: secret, on server 0 only."""
        return self.folder / "secrets" / "peer.next.token"

    @property
    def token_hash(self) -> Path:
        """Return the hash of that token, on server 1; of two, while server 0 is rotating its token."""
        return self.folder / "secrets" / "peer.hash"

    @property
    def relay_identity(self) -> Path:
        """Return server 1's identity, which signs its relay keys: secret, on server 1 only."""
        return self.folder / "secrets" / "relay.key"

    @property
    def identity(self) -> Path:
        """Return server 0's identity, which signs its tasks' successors: secret, on server 0 only."""
        return self.folder / "secrets" / "identity.key"

    @property
    def operators(self) -> Path:
        """Return the operator tokens, by their hashes."""
        return self.folder / "secrets" / "operators.json"

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
        """Return the key that verifies tickets, on server 1."""
        return self.folder / "task" / "ticket.pub"

    def peer_certificate(self, role: int) -> Path:
        """Return the stored certificate of the server in that role."""
        return self.folder / "tls" / f"server{role}.crt"

    def make_folders(self) -> None:
        """Create the directory and its subdirectories, for their owner only."""
        for path in (self.folder, *(self.folder / name for name in ("tls", "secrets", "task", "data"))):
            path.mkdir(parents=True, exist_ok=True, mode=FOLDER)


def write_new(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file that must not exist yet; it never has wider permissions than `mode`."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        raise OperationError(f"{path} already exists and will not be overwritten; move it first") from None
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)  # regardless of the umask
        file.write(content)
        file.flush()
        os.fsync(descriptor)
    sync_folder(path.parent)


@dataclass(frozen=True, slots=True)
class Installed:
    """What `secemb init` prints; the token cannot be shown again."""

    settings: str
    certificate: str  # its fingerprint
    operator_token: str = field(repr=False)


def install(folder: Path, role: int, addresses: Addresses) -> Installed:
    """Create a server's directory; one that is not empty is refused."""
    home = ServerDirectory(folder)
    if folder.exists() and any(folder.iterdir()):
        raise OperationError(f"{folder} is not empty; choose another directory or empty it")
    identity = make_identity(addresses.host)
    home.make_folders()
    write_new(home.key, identity.key, mode=SECRET)
    write_new(home.certificate, identity.certificate, mode=PUBLIC)
    if role == 0:
        write_new(home.token, new_token().encode() + b"\n", mode=SECRET)
        write_new(home.identity, private_pem(Ed25519PrivateKey.generate()), mode=SECRET)
    else:
        write_new(home.relay_identity, private_pem(Ed25519PrivateKey.generate()), mode=SECRET)
    token, operator = new_operator(FIRST_OPERATOR, OperatorRole.ADMIN, time.time())
    write_new(home.operators, encode([operator]), mode=SECRET)
    write_new(home.settings, settings_text(role, addresses).encode(), mode=SECRET)
    return Installed(str(home.settings), fingerprint(identity.certificate), token)


def private_pem(key: Ed25519PrivateKey) -> bytes:
    """Return a private key as PEM. Secret."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def new_operator(name: str, role: OperatorRole, now: float, expires_at: float | None = None) -> tuple[str, Operator]:
    """Return a new operator token, and its stored form."""
    token = new_token()
    return token, Operator(name=name, role=role, token_hash=hash_of(token), created_at=now, expires_at=expires_at)
