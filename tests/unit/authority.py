"""A certificate authority for tests: real certificates, with the faults that a test asks for."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

HERE = "127.0.0.1"


class Authority:
    """Issues certificates of servers; with a parent, it is an authority in between."""

    def __init__(self, folder: Path, name: str = "authority", parent: "Authority | None" = None) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        builder = _dated(self.name, self.key, days=(-1, 30)).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        issuer = parent or self
        self.pem = builder.issuer_name(issuer.name).sign(issuer.key, SHA256()).public_bytes(Encoding.PEM)
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(self.pem)
        self._folder, self._issued = folder, 0

    def issue(self, host: str = HERE, *, days: tuple[float, float] = (-1, 30)) -> tuple[Path, Path]:
        """Return the files of a new certificate and its key, valid from the first of these days to the second."""
        key, subject = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
        builder = _dated(subject, key, days=days).add_extension(
            x509.SubjectAlternativeName([_name(host)]), critical=True
        )
        certificate = builder.issuer_name(self.name).sign(self.key, SHA256())
        self._issued += 1
        stem = self._folder / f"{self.file.stem}-{self._issued}"
        cert, secret = stem.with_suffix(".crt"), stem.with_suffix(".key")
        cert.write_bytes(certificate.public_bytes(Encoding.PEM))
        secret.touch(mode=0o600)
        secret.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return cert, secret

    def issue_both(self, host: str = HERE, *, days: tuple[float, float] = (-1, 30)) -> Path:
        """Return one file with a new certificate and its key."""
        cert, key = self.issue(host, days=days)
        both = cert.with_suffix(".pem")
        both.touch(mode=0o600)
        both.write_bytes(key.read_bytes() + cert.read_bytes())
        return both


def _dated(
    subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: tuple[float, float]
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
