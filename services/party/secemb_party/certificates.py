"""The expiry of a server's certificates, for its metrics and for warnings in its log."""

import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509

from secemb_party.logs import get_logger
from secemb_party.metrics import Expiring, Metrics
from secemb_party.settings import Settings

SOON = 30 * 86_400.0  # seconds before its expiry at which a certificate needs attention
REMIND_SECONDS = 86_400.0
_RENEW = "renew it with its issuer and write the new file over the old one"


class Watched(NamedTuple):
    """A certificate named in the settings: when it expires, and how to renew it."""

    name: Expiring
    expires: Callable[[], float]  # reads the file again, because it may be replaced while the server runs
    fix: str


def certificates_of(settings: Settings) -> Iterator[Watched]:
    """Yield every certificate named in the settings."""
    peer = settings.peer
    own_fix = "run secemb pair rotate, send the new pair file to the other operator, then secemb pair switch"
    yield Watched("own-certificate", lambda: expiries(peer.cert)[0], own_fix)
    # The new one is next to the old one.
    peer_fix = "ask the other operator to run secemb pair rotate, then secemb pair import with the new pair file"
    yield Watched("peer-certificate", lambda: max(expiries(peer.peer_ca)), peer_fix)
    if (to_devices := settings.devices.tls_cert) is not None:
        yield Watched("devices-certificate", lambda: expiries(to_devices)[0], _RENEW)  # its issuers follow it
    if (to_operators := settings.operator.tls_cert) is not None:
        yield Watched("operator-certificate", lambda: expiries(to_operators)[0], _RENEW)


def watch_certificates(metrics: Metrics, settings: Settings) -> None:
    """Show in the metrics when each certificate expires; the files are read whenever the metrics are."""
    for one in certificates_of(settings):
        metrics.watch_expiry(one.name, one.expires)


class CertificateLines:
    """Logs which certificates expire soon, have expired or cannot be read: at first, and then daily."""

    def __init__(self, settings: Settings) -> None:
        self._watched = list(certificates_of(settings))
        self._told: dict[Expiring, tuple[str, float]] = {}  # what was logged last about each, and when

    def tell(self, now: float) -> None:
        """Check every certificate at this time."""
        for one in self._watched:
            expires = one.expires()
            state = _state(expires, now)
            said, at = self._told.get(one.name, ("", -math.inf))
            if state == said and now - at < REMIND_SECONDS:
                continue
            self._told[one.name] = state, now
            if state:
                date = "" if math.isnan(expires) else datetime.fromtimestamp(expires, UTC).date().isoformat()
                get_logger().warning(state, certificate=one.name, expires=date, fix=one.fix)


def _state(expires: float, now: float) -> str:
    """Return what is wrong with a certificate that expires then, or None."""
    if math.isnan(expires):
        return "a certificate cannot be read"
    if now >= expires:
        return "a certificate has expired"
    return "a certificate expires soon" if expires - now < SOON else ""


def expiries(path: Path) -> list[float]:
    """Return when the certificates in a file expire, in order; NaN for a file that cannot be read."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return [math.nan]
    return [one.not_valid_after_utc.timestamp() for one in found]
