"""Facts about the server for pages: its role, certificates, data directory and the ledger's file."""

import shutil
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from secemb_party.ledger import Rollback
from secemb_party.operators import Order
from secemb_party.peer_messages import StandingMessage
from secemb_party.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """Server 0 can query its peer and roll back the model; server 1 can do neither."""

    ask_standing: Callable[[], Awaitable[StandingMessage]] | None = None
    roll_back: Callable[[int, int, Order], Awaitable[Rollback]] | None = None  # target version, replaced version


SOON_DAYS = 30
_SECONDS_A_DAY = 86_400


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate, as currently in its file."""

    name: str
    ends_at: float | None  # None: the file cannot be read
    fingerprint: str

    def days_left(self, now: float) -> int | None:
        """Return the number of whole days for which it is still valid, or None if unknown."""
        return None if self.ends_at is None else int((self.ends_at - now) // _SECONDS_A_DAY)


@dataclass(frozen=True, slots=True)
class Disk:
    """Bytes on the disk that holds the data directory."""

    free: int
    whole: int
    models: int
    shares: int
    ledger: int | None  # None: the ledger is on a database server


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The files of a server that pages report on."""

    data_dir: Path | None = None
    certificate_files: tuple[tuple[str, Path], ...] = ()
    secure: bool = False  # whether the operator's listener uses TLS

    @classmethod
    def of(cls, settings: Settings) -> "Surroundings":
        """Return the files that the settings name."""
        files = [
            ("this server, to its peer", settings.peer.cert),
            ("the peer", settings.peer.peer_ca),
        ]
        for name, at in (("devices", settings.devices), ("operators", settings.operator)):
            if at.tls_cert is not None:
                files.append((f"this server, to {name}", at.tls_cert))
        return cls(
            data_dir=settings.data_dir,
            certificate_files=tuple(files),
            secure=settings.operator.tls_cert is not None,
        )

    def certificates(self) -> list[Certificate]:
        """Return all certificates named in the settings."""
        return [_read(name, path) for name, path in self.certificate_files]

    def disk(self) -> Disk | None:
        """Return the size of the stored files and the free space."""
        if self.data_dir is None:
            return None
        usage = shutil.disk_usage(self.data_dir)
        ledger = sum(_sizes(self.data_dir.glob("ledger.db*")))
        return Disk(
            free=usage.free,
            whole=usage.total,
            models=sum(_sizes((self.data_dir / "models").rglob("*"))),
            shares=sum(_sizes((self.data_dir / "shares").rglob("*"))),
            ledger=ledger or None,
        )


def _read(name: str, path: Path) -> Certificate:
    try:
        found = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError):
        return Certificate(name, None, "")
    return Certificate(name, found.not_valid_after_utc.timestamp(), found.fingerprint(SHA256()).hex())


def _sizes(paths: Iterator[Path]) -> Iterator[int]:
    for path in paths:
        try:
            if path.is_file():
                yield path.stat().st_size
        except OSError:  # removed since it was listed
            continue


def utc(at: float) -> datetime:
    """Return a human-readable time in UTC."""
    return datetime.fromtimestamp(at, UTC)
