"""Settings come from one file and named variables, and say what is wrong without saying what is secret."""

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from secemb_party.errors import SettingsError
from secemb_party.setting_types import SecretFile
from secemb_party.settings import Metrics, Operator, known_variables, load_settings

SAMPLES = Path(__file__).parents[2] / "deploy" / "config"
SECRET = "hunter2-hunter2"


def install(role: int, directory: Path) -> Path:
    """Copy a sample and make every file that it names."""
    text = (SAMPLES / f"server{role}.toml").read_text(encoding="utf-8")
    for name in re.findall(r'"((?:tls|secrets)/[^"]+|task\.json|ticket\.pub)"', text):
        file = directory / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(SECRET, encoding="ascii")
        file.chmod(0o600)
    path = directory / "settings.toml"
    path.write_text(text, encoding="utf-8")
    return path


def complaint(path: Path, environ: dict[str, str]) -> str:
    with pytest.raises(SettingsError) as raised:
        load_settings(path, environ)
    assert raised.value.__cause__ is None
    assert SECRET not in str(raised.value)
    return str(raised.value)


@pytest.fixture
def server0(tmp_path: Path) -> Path:
    return install(0, tmp_path)


@pytest.fixture
def server1(tmp_path: Path) -> Path:
    return install(1, tmp_path)


@pytest.mark.parametrize("role", [0, 1])
def test_the_sample_is_accepted_and_says_what_the_defaults_are(role: int, tmp_path: Path) -> None:
    path = install(role, tmp_path)
    settings = load_settings(path, {})
    assert settings.role == role
    told = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        if heading := re.match(r"\[(\w+)\]", line):
            section = getattr(settings, heading[1])
        if match := re.match(r"(\w+) = .*# default: ([^\s.]+(?:\.[\d.]*\d)?)", line):
            assert str(type(section).model_fields[match[1]].default).lower() == match[2], line
            told += 1
    assert told > 8


def test_together_the_samples_explain_every_setting() -> None:
    texts = [(SAMPLES / f"server{role}.toml").read_text(encoding="utf-8") for role in (0, 1)]
    for name in known_variables():
        key = name.removeprefix("SECEMB_").rpartition("__")[2].lower()
        assert any(re.search(rf"^(# )?{key} = ", text, re.MULTILINE) for text in texts), name


def test_a_variable_is_stronger_than_the_file(server0: Path) -> None:
    environ = {"SECEMB_DEVICES__PORT": "9000", "SECEMB_DEVICES__OPEN_ENROLMENT": "true", "SECEMB_DATA_DIR": "data"}
    settings = load_settings(server0, environ | {"PATH": "/bin"})
    assert (settings.devices.port, settings.devices.open_enrolment, settings.devices.host) == (9000, True, "0.0.0.0")
    assert settings.data_dir == server0.parent / "data"


def test_a_variable_may_name_the_role(server1: Path) -> None:
    text = server1.read_text(encoding="utf-8").replace("role = 1\n", "")
    server1.write_text(text, encoding="utf-8")
    assert "role: this setting is required" in complaint(server1, {})
    assert load_settings(server1, {"SECEMB_ROLE": "1"}).role == 1


def test_nothing_is_taken_from_the_process_itself(server0: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECEMB_DEVICES__PORT", "9000")
    assert load_settings(server0, {}).devices.port == 8440


def test_two_listeners_cannot_share_a_port(server1: Path) -> None:
    shared = {"SECEMB_METRICS__PORT": "8442"}
    assert "metrics.port: port 8442 is already used by [operator]" in complaint(server1, shared)
    assert "operator.port: port" in complaint(
        server1, {"SECEMB_OPERATOR__HOST": "0.0.0.0", "SECEMB_OPERATOR__PORT": "8440"}
    )
    assert load_settings(server1, shared | {"SECEMB_METRICS__HOST": "127.0.0.2"}).metrics.port == 8442


def test_only_devices_are_served_beyond_this_machine_unless_the_operator_says_so() -> None:
    for section in (Operator(), Metrics()):
        assert section.host == "127.0.0.1"


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("SECEMB_ROL", "did you mean SECEMB_ROLE?"),
        ("SECEMB_PEER__URLS", "did you mean SECEMB_PEER__URL?"),
        ("SECEMB_ROLE__X", "did you mean SECEMB_ROLE?"),
        ("SECEMB_DEVICES", "unknown setting"),
        ("secemb_zzzzzzzzzz", "unset it"),
    ],
)
def test_a_variable_without_a_meaning_is_refused(server0: Path, name: str, fix: str) -> None:
    text = complaint(server0, {name: SECRET})
    assert name in text
    assert fix in text


@pytest.mark.parametrize(
    ("line", "place", "key"),
    [('rol = "x"\n', "data_dir", "rol"), ('prot = "x"\n', "tls_cert", "devices.prot"), ("[x]\n", "[devices]", "x")],
)
def test_a_key_without_a_meaning_is_refused_at_every_level(server0: Path, line: str, place: str, key: str) -> None:
    server0.write_text(server0.read_text(encoding="utf-8").replace(place, line + place, 1), encoding="utf-8")
    assert f"{key}: unknown setting; remove it" in complaint(server0, {}).splitlines()


def test_each_role_is_told_what_it_needs_and_what_is_not_its_own(server0: Path, tmp_path: Path) -> None:
    text = complaint(server0, {"SECEMB_ROLE": "1"})
    assert "peer.port: required on server 1; set it to" in text
    assert "peer.url: only used by server 0; remove it" in text
    assert "devices.open_enrolment: only used by server 0; remove it" in text
    text = complaint(install(1, tmp_path), {"SECEMB_ROLE": "0"})
    assert "peer.url: required on server 0; set it to" in text
    assert "task.ticket_public_file: only used by server 1; remove it" in text


def test_tls_needs_both_its_files(server0: Path) -> None:
    text = re.sub(r"(?m)^tls_key.*\n", "", server0.read_text(encoding="utf-8"))
    server0.write_text(text, encoding="utf-8")
    assert "devices.tls_cert and devices.tls_key: set both" in complaint(server0, {})


@pytest.mark.parametrize(
    ("name", "value", "fix"),
    [
        ("SECEMB_DEVICES__PORT", SECRET, "devices.port: "),
        ("SECEMB_DEVICES__PORT", "0", "devices.port: "),
        ("SECEMB_WORK__THREADS", "0", "work.threads: "),
        ("SECEMB_PEER__URL", f"https://me:{SECRET}@there", "peer.url: use https://host:port"),
        ("SECEMB_PEER__URL", "http://there:1", "peer.url: use https://host:port"),
        ("SECEMB_PEER__TOKEN_FILE", SECRET, "peer.token_file: no such file"),
        ("SECEMB_LEDGER__URL", f"postgresql://me:{SECRET}@there/db", "ledger.url: contains a password"),
        ("SECEMB_LEDGER__URL", "nonsense", "ledger.url: invalid ledger URL"),
        ("SECEMB_LEDGER__PASSWORD_FILE", "secrets/peer.key", "ledger.password_file: set ledger.url as well"),
        ("SECEMB_ROUNDS__EVALUATE_EVERY", "1", "rounds.evaluate_every: 1 would leave no rounds"),
        ("SECEMB_TASK__FILE", "other.json", "task.file: no such file"),
        ("SECEMB_LOGS__LEVEL", SECRET, "logs.level: "),
    ],
)
def test_a_wrong_value_is_named_by_its_key_and_not_repeated(server0: Path, name: str, value: str, fix: str) -> None:
    assert fix in complaint(server0, {name: value})


def test_all_faults_are_told_at_once(server0: Path) -> None:
    lines = complaint(server0, {"SECEMB_DEVICES__PORT": "x", "SECEMB_WORK__MEMORY_BYTES": "-1"}).splitlines()
    assert [line.partition(":")[0] for line in lines[1:]] == ["devices.port", "work.memory_bytes"]


def test_a_file_that_is_not_there_or_not_toml_is_refused(tmp_path: Path) -> None:
    assert "create a settings file with `secemb init`" in complaint(tmp_path / "none.toml", {})
    broken = tmp_path / "broken.toml"
    broken.write_text("role = ", encoding="utf-8")
    assert "is not valid TOML" in complaint(broken, {})
    broken.write_bytes(b"\xff\xfe")
    assert "cannot read" in complaint(broken, {})


def test_settings_do_not_change(server0: Path) -> None:
    settings = load_settings(server0, {})
    for model, name in ((settings, "role"), (settings.devices, "open_enrolment")):
        with pytest.raises(ValidationError):
            setattr(model, name, 1)


def test_the_ledger_is_in_the_data_directory_unless_a_url_is_given(server0: Path) -> None:
    assert load_settings(server0, {"SECEMB_DATA_DIR": "/data"}).ledger_url() == "sqlite:////data/ledger.db"
    environ = {"SECEMB_LEDGER__URL": "postgresql://me@there/db"}
    assert load_settings(server0, environ).ledger_url() == "postgresql://me@there/db"
    environ["SECEMB_LEDGER__PASSWORD_FILE"] = "secrets/peer.key"
    assert load_settings(server0, environ).ledger_url() == f"postgresql://me:{SECRET}@there/db"


def test_no_secret_is_shown(server0: Path) -> None:
    settings = load_settings(server0, {})
    assert settings.peer.token_file is not None
    assert settings.peer.token_file.text() == SECRET
    for shown in (repr(settings), str(settings), settings.model_dump_json(), repr(settings.peer.token_file)):
        assert SECRET not in shown


@pytest.mark.parametrize("mode", [0o604, 0o644, 0o660, 0o602, 0o601])
def test_a_secret_that_others_can_reach_is_refused_with_the_command_that_helps(server0: Path, mode: int) -> None:
    key = server0.parent / "secrets" / "peer.key"
    key.chmod(mode)
    assert f"peer.key: {key} is accessible to other users; run: chmod 600 {key}" in complaint(server0, {})


@pytest.mark.parametrize("mode", [0o400, 0o600, 0o640, 0o440])
def test_a_secret_of_the_owner_and_its_group_is_accepted(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"\xff\n")
    file.chmod(mode)
    assert SecretFile(file).content == b"\xff\n"


@pytest.mark.parametrize("content", [b"", b" \n", bytes(1 << 17)])
def test_a_file_that_cannot_hold_a_secret_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(ValueError, match="empty or too long"):
        SecretFile(file)


def test_a_secret_is_read_when_the_server_starts(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(f" {SECRET}\n", encoding="ascii")
    file.chmod(0o600)
    secret = SecretFile(file)
    file.unlink()
    assert secret.text() == SECRET


def test_the_samples_are_toml_that_any_reader_takes() -> None:
    for sample in SAMPLES.glob("*.toml"):
        assert tomllib.loads(sample.read_text(encoding="utf-8"))["role"] in {0, 1}


def test_what_is_meant_for_ray_is_refused_with_threads(server0: Path) -> None:
    text = server0.read_text(encoding="utf-8")
    server0.write_text(text.replace("# workers = 2", "workers = 8"), encoding="utf-8")
    assert 'compute.workers: only used with engine = "ray"' in complaint(server0, {})
    server0.write_text(text.replace('engine = "threads"', 'engine = "ray"'), encoding="utf-8")
    found = load_settings(server0, {"SECEMB_COMPUTE__WORKERS": "8"}).compute
    assert (found.engine, found.address, found.workers, found.memory_bytes) == ("ray", "auto", 8, None)
