"""When certificates expire: read from files that may hold several, or none."""

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from secemb_party.upkeep import expiries
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
