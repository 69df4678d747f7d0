"""A server's directory made from nothing: settings, keys and the tokens that are shown once."""

import hashlib
import secrets
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from secemb_tools.operate.certificate import fingerprint, make_identity
from secemb_tools.operate.home import PUBLIC, SECRET, Home, replace_file, write_new
from secemb_tools.operate.refusal import OperationError
from secemb_tools.operate.settings_text import Addresses, settings_text


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
    replace_file(home.key, identity.key, mode=SECRET)
    replace_file(home.certificate, identity.certificate, mode=PUBLIC)
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
