"""Certificates of the peer channel: self-signed, because each server accepts only one, received in advance."""

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from secemb_tools.errors import OperationError

DAYS = 730
_BACKDATED = timedelta(hours=1)  # in case the other server's clock is behind
_LONGEST_NAME = 64  # maximum length of a common name; the names that are checked are in the extension


@dataclass(frozen=True, slots=True, repr=False)
class Identity:
    """A private key and its certificate, both PEM."""

    key: bytes
    certificate: bytes


def make_identity(host: str, *, days: float = DAYS) -> Identity:
    """Return a new P-256 key and a certificate for this host name or address.

    P-256 and not Ed25519, because any TLS proxy in between supports it.
    """
    key, now, number = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC), x509.random_serial_number()
    # The number makes the name unique: OpenSSL looks up certificates by name, and could take the wrong one.
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, host[:_LONGEST_NAME]),
            x509.NameAttribute(NameOID.SERIAL_NUMBER, f"{number:x}"),
        ]
    )
    usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(number)
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([_name(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_signs_only(), critical=True)
        .add_extension(usage, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    return Identity(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
        builder.sign(key, SHA256()).public_bytes(Encoding.PEM),
    )


def read_certificate(pem: bytes) -> x509.Certificate:
    """Return the certificate in a PEM file."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise OperationError("not a PEM certificate; export the pair file again") from None


def fingerprint(pem: bytes) -> str:
    """Return the SHA-256 of a certificate in groups that can be read aloud over the telephone."""
    return grouped(read_certificate(pem).fingerprint(SHA256()))


def grouped(digest: bytes) -> str:
    """Return a digest in groups of four digits."""
    text = digest.hex()
    return " ".join(text[at : at + 4] for at in range(0, len(text), 4))


def grouped_hash(data: bytes) -> str:
    """Return the SHA-256 of public bytes, in groups for comparison."""
    return grouped(hashlib.sha256(data).digest())


def hosts(certificate: x509.Certificate) -> set[str]:
    """Return the host names and addresses that a certificate is for."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return set()
    addresses = {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    return addresses | set(names.get_values_for_type(x509.DNSName))


def public_bytes(certificate: x509.Certificate) -> bytes:
    """Return a certificate's public key, for comparison."""
    return certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise OperationError("--host must be a host name in ASCII, or an IP address") from None


def _signs_only() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
