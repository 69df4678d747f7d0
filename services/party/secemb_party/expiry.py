"""When certificates expire, read from their files whenever the metrics are: files are replaced while a server runs."""

import math
from pathlib import Path

from cryptography import x509

from secemb_party.metrics import Metrics
from secemb_party.settings import Settings


def watch_certificates(metrics: Metrics, settings: Settings) -> None:
    """Let the metrics show when each certificate that the settings name expires."""
    peer, devices = settings.peer, settings.devices
    metrics.watch_expiry("own-certificate", lambda: expiries(peer.cert)[0])
    metrics.watch_expiry("peer-certificate", lambda: max(expiries(peer.peer_ca)))  # the new one lies beside the old
    if (served := devices.tls_cert) is not None:
        metrics.watch_expiry("devices-certificate", lambda: expiries(served)[0])  # its issuers follow it in the file


def expiries(path: Path) -> list[float]:
    """Return when the certificates in a file expire, in their order; NaN for a file that cannot be read."""
    try:
        found = x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return [math.nan]
    return [one.not_valid_after_utc.timestamp() for one in found]
