"""`secemb check` finds what devices and operators would complain about, before they do."""

import socket
from pathlib import Path

import pytest
from tests.unit.authority import Authority
from tests.unit.test_settings import install

from secemb_party.settings import Settings, load_settings
from secemb_tools.local.process import free_ports
from secemb_tools.operate.connection_checks import check_listeners
from secemb_tools.operate.findings import Finding


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def settings_with(tmp_path: Path, identity: tuple[Path, Path], **more: str) -> Settings:
    """Return the settings of the sample with these files as certificate and key of the devices' listener."""
    folder = tmp_path / "server"
    folder.mkdir(exist_ok=True)
    variables = {"SECEMB_DEVICES__TLS_CERT": str(identity[0]), "SECEMB_DEVICES__TLS_KEY": str(identity[1])}
    for name, port in zip(("DEVICES", "OPERATOR", "METRICS"), free_ports(3), strict=True):
        variables |= {f"SECEMB_{name}__PORT": str(port), f"SECEMB_{name}__HOST": "127.0.0.1"}
    return load_settings(install(0, folder), variables | more)


def found(settings: Settings, ca: Path | None = None) -> dict[str, Finding]:
    return {one.check: one for one in check_listeners(settings, ca)}


def test_a_certificate_that_leads_to_the_authority_is_in_order(authority: Authority, tmp_path: Path) -> None:
    findings = found(settings_with(tmp_path, authority.issue()), authority.file)
    assert {one.status for one in findings.values()} <= {"ok", "warn"}
    assert "chains to a CA in" in findings["devices certificate"].text


def test_a_certificate_of_another_authority_is_found(authority: Authority, tmp_path: Path) -> None:
    settings = settings_with(tmp_path, Authority(tmp_path, "other").issue())
    assert found(settings)["devices certificate"].status != "fail"  # nobody has said whom devices trust
    assert found(settings, authority.file)["devices certificate"].status == "fail"


def test_a_chain_without_the_authority_in_between_is_found(authority: Authority, tmp_path: Path) -> None:
    between = Authority(tmp_path, "between", authority)
    cert, key = between.issue()
    settings = settings_with(tmp_path, (cert, key))
    finding = found(settings, authority.file)["devices certificate"]
    assert finding.status == "fail"
    assert "intermediate certificates" in finding.fix
    cert.write_bytes(cert.read_bytes() + between.pem)
    assert found(settings, authority.file)["devices certificate"].status != "fail"


@pytest.mark.parametrize(
    ("days", "status", "says"),
    [((-3, -1), "fail", "expired"), ((1, 3), "fail", "not valid before"), ((-1, 9), "warn", "expires on")],
)
def test_dates_are_told(
    authority: Authority, tmp_path: Path, days: tuple[float, float], status: str, says: str
) -> None:
    finding = found(settings_with(tmp_path, authority.issue(days=days)), authority.file)["devices certificate"]
    assert (finding.status, says in finding.text) == (status, True)


def test_a_key_of_another_certificate_is_found(authority: Authority, tmp_path: Path) -> None:
    settings = settings_with(tmp_path, (authority.issue()[0], authority.issue()[1]))
    assert "does not belong" in found(settings)["devices certificate"].text


def test_a_listener_that_others_reach_without_tls_is_told(authority: Authority, tmp_path: Path) -> None:
    everywhere = {"SECEMB_OPERATOR__HOST": "0.0.0.0", "SECEMB_METRICS__HOST": "0.0.0.0"}
    findings = found(settings_with(tmp_path, authority.issue(), **everywhere))
    assert "without TLS" in findings["operator TLS"].text
    assert "allow only Prometheus to reach this port" in findings["metrics"].fix
    assert not {"operator TLS", "metrics"} & found(settings_with(tmp_path, authority.issue())).keys()


def test_a_port_that_another_program_holds_is_told(authority: Authority, tmp_path: Path) -> None:
    settings = settings_with(tmp_path, authority.issue())
    with socket.create_server((settings.metrics.host, settings.metrics.port)):
        findings = found(settings)
    assert (findings["metrics port"].status, findings["devices port"].status) == ("warn", "ok")
    assert "stop the other program" in findings["metrics port"].fix
    assert "is free" in findings["devices port"].text
