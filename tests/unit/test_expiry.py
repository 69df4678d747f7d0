"""When certificates expire: read from files that may hold several, or none, and logged before it happens."""

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.test_settings import install

from secemb_party.certificates import REMIND_SECONDS, CertificateLines, expiries
from secemb_party.settings import load_settings
from secemb_tools.operate.certificate import make_identity

DAY = 86_400


def test_every_certificate_of_a_file_is_read_in_order(tmp_path: Path) -> None:
    path = tmp_path / "bundle.crt"
    path.write_bytes(b"".join(make_identity("example.org", days=days).certificate for days in (20, 10)))
    now = datetime.now(UTC).timestamp()
    assert expiries(path) == [pytest.approx(now + 20 * DAY, abs=600), pytest.approx(now + 10 * DAY, abs=600)]


def test_a_file_that_cannot_be_read_has_no_expiry_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "broken.crt").write_text("no certificate")
    for name in ("broken.crt", "missing.crt"):
        [found] = expiries(tmp_path / name)
        assert math.isnan(found)


def test_the_log_names_a_certificate_that_ends_soon_and_its_fix_once_a_day(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = load_settings(install(0, tmp_path), {})
    settings.peer.cert.write_bytes(make_identity("server0", days=400).certificate)
    settings.peer.peer_ca.write_bytes(make_identity("server1", days=40).certificate)
    now, lines = datetime.now(UTC).timestamp(), CertificateLines(settings)

    def told(days: float, seconds: float = 0.0) -> list[str]:
        caplog.clear()
        lines.tell(now + days * DAY + seconds)
        return [one.getMessage() for one in caplog.records if "peer-certificate" in one.getMessage()]

    assert told(1) == []
    [said] = told(11)
    assert "expires soon" in said
    assert "secemb pair rotate" in said
    assert told(11, REMIND_SECONDS - 1) == []
    assert len(told(11, REMIND_SECONDS)) == 1
    [said] = told(40)
    assert "has expired" in said
    settings.peer.peer_ca.write_bytes(make_identity("server1", days=400).certificate)
    assert told(40, 60) == []  # the new file is read without a restart
    settings.peer.peer_ca.write_text("no certificate")
    [said] = told(40, 120)
    assert "cannot be read" in said
    assert not [one for one in caplog.records if "own-certificate" in one.getMessage()]
