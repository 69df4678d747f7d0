"""The directory of one server: where `secemb init` puts things and the other commands find them."""

import os
from dataclasses import dataclass
from pathlib import Path

from secemb_tools.operate.refusal import OperationError

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


def replace_file(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file anew, as a whole or not at all."""
    unfinished = path.with_name(f".{path.name}.new")
    unfinished.unlink(missing_ok=True)
    write_new(unfinished, content, mode=mode)
    unfinished.replace(path)
