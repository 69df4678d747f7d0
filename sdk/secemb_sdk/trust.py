"""Which servers a device trusts: addresses, certificates and pinned keys.

A pin is the SHA-256 of a server's public key (its SubjectPublicKeyInfo, as in RFC 7469), 64 hexadecimal digits. It is
compared during the handshake, before any byte of a request is sent, in addition to the usual check of the certificate.
"""

import hashlib
import hmac
import socket
import ssl
from collections.abc import Collection
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm

from secemb_sdk.errors import AddressError, PinError
from secemb_sdk.home.detections import Misconduct

Authorities = ssl.SSLContext | str | Path | None  # a context, a file of authorities (PEM), or what the system trusts
Pins = Collection[str]

_PORTS = {"http": 80, "https": 443}


def check_address(url: str) -> str:
    """Return a server's address in one form; plain HTTP is allowed only for this machine."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        raise AddressError("a server's address is not valid; use one like https://server0.example") from None
    if parts.scheme not in _PORTS or not host or parts.username is not None or parts.query or parts.fragment:
        raise AddressError("a server's address must be https:// and a host, without a user, query or fragment")
    if parts.scheme == "http" and not is_loopback(host):
        raise AddressError("plain http is allowed only for loopback addresses; use the server's https:// address")
    shown = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{shown}:{port or _PORTS[parts.scheme]}{parts.path.rstrip('/')}"


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def make_context(url: str, *, ca: Authorities = None, pins: Pins = ()) -> ssl.SSLContext:
    """Return the TLS settings for one server; a given context is used unchanged."""
    wanted = _check_pins(pins)
    if url.startswith("http:"):
        if wanted:
            raise AddressError("pins need an https:// address")
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # trusts no one; httpx wants a context
    if isinstance(ca, ssl.SSLContext):
        if wanted:
            raise PinError("pins cannot be combined with an SSLContext; pass a CA file instead")
        return ca
    try:
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
    except OSError:
        raise AddressError("cannot read the CA file; it must be a PEM file with the certificates to trust") from None
    if wanted:
        _pin(context, wanted)
    return context


_EXPIRED, _NOT_YET = 10, 9  # OpenSSL's numbers
_OTHER_HOST = (62, 64)  # name, address
_UNKNOWN = (2, 18, 19, 20, 21)  # an issuer that is missing, or a certificate that signs itself
# What OpenSSL calls the first bytes of something that is not TLS: it depends on the version.
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG")
_PROBE_SECONDS = 3.0


def tls_problem(error: BaseException, url: str) -> str | None:
    """Return what a server does wrong, if its certificate or its protocol is why a request failed; None otherwise.

    The words follow the server's name. A connection that was cut is none of these: it may succeed the next time.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _certificate_problem(cause)
    if isinstance(cause, ssl.SSLError) and cause.reason in _NOT_TLS:
        return "does not use TLS on this port; check the port, and whether the address should start with http://"
    if isinstance(cause, ssl.SSLError) and "PROTOCOL" in (cause.reason or ""):
        return "has no TLS version in common with this device; it must support 1.2 or newer"
    parts = urlsplit(url)
    if parts.scheme == "http" and _hung_up(error) and _speaks_tls(parts.hostname or "", parts.port or _PORTS["http"]):
        return "uses TLS on this port; use https:// instead of http://"
    return None


def _certificate_problem(error: ssl.SSLCertVerificationError) -> str:
    code = error.verify_code
    if code == _EXPIRED:
        return "has an expired certificate; ask its operator to renew it, or check this machine's clock"
    if code == _NOT_YET:
        return "has a certificate that is not valid yet; check this machine's clock"
    if code in _OTHER_HOST:
        return "has a certificate for a different host name; check the address"
    if code in _UNKNOWN:
        return (
            "has a certificate from an unknown authority; if you trust it, pass the authority's PEM file "
            "(--ca, or ca= in Python)"
        )
    return f"has an invalid certificate: {error.verify_message}"


def line_problem(error: BaseException) -> str:
    """Return in words why a request got no answer, where TLS is not the reason."""
    name = type(error).__name__  # httpx's, which is slow to import
    if name == "ConnectError":
        return "could not connect"
    if name.endswith("Timeout"):
        return "timed out"
    return "the connection was lost" if name in ("RemoteProtocolError", "ReadError", "WriteError") else name


def _hung_up(error: BaseException) -> bool:
    """Tell whether a server closed the connection instead of answering, as TLS servers do with plain HTTP."""
    return type(error).__name__ in ("RemoteProtocolError", "ReadError")  # httpx's, which is slow to import


def _speaks_tls(host: str, port: int) -> bool:
    """Begin a handshake; a server that shows any certificate speaks TLS."""
    try:
        with (
            socket.create_connection((host, port), timeout=_PROBE_SECONDS) as line,
            ssl.create_default_context().wrap_socket(line, server_hostname=host),
        ):
            return True
    except ssl.SSLCertVerificationError:
        return True
    except OSError:
        return False


def key_digest(certificate: bytes) -> bytes:
    """Return the SHA-256 of the public key in a certificate (DER)."""
    # Here, because only pins need them and the import is slow.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = x509.load_der_x509_certificate(certificate).public_key()
    return hashlib.sha256(key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).digest()


def _pin(context: ssl.SSLContext, pins: frozenset[bytes]) -> None:
    """Check the server's key at the end of every handshake of this context."""

    class PinnedObject(ssl.SSLObject):
        """A connection over memory buffers, as event loops use it; both transports do."""

        def do_handshake(self) -> None:
            super().do_handshake()
            _check_key(self, pins)

    context.sslobject_class = PinnedObject


def _check_key(connection: Any, pins: frozenset[bytes]) -> None:
    try:
        shown = key_digest(connection.getpeercert(binary_form=True) or b"")
    except (ValueError, UnsupportedAlgorithm):
        shown = b""
    if not any(hmac.compare_digest(shown, pin) for pin in pins):
        raise PinError(
            "the server's key is not one of the pinned keys; nothing was sent to it", noticed=Misconduct.SERVER_KEY
        )


def _check_pins(pins: Pins) -> frozenset[bytes]:
    if isinstance(pins, str):
        raise PinError("pins must be a list of digests for each server")
    try:
        found = frozenset(bytes.fromhex(pin) for pin in pins)
    except ValueError:
        found = frozenset({b""})
    if any(len(pin) != hashlib.sha256().digest_size for pin in found):
        raise PinError("a pin must be the SHA-256 of a server's public key: 64 hexadecimal digits")
    return found
