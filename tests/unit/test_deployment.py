"""What organisations deploy: Kubernetes manifests and compose files, read as those programs read them."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
import yaml  # type: ignore[import-untyped]

from secemb_party.settings import Devices, Metrics, Operator, known_variables

ROOT = Path(__file__).parents[2]
# What its API server accepts of these kinds, with unknown fields refused.
SCHEMA = json.loads((Path(__file__).parent / "kubernetes.schema.json").read_text(encoding="utf-8"))
KINDS = {"StatefulSet": "io.k8s.api.apps.v1", "Service": "io.k8s.api.core.v1", "ConfigMap": "io.k8s.api.core.v1"}
LISTENERS = {"devices": Devices().port, "operator": Operator().port, "metrics": Metrics().port}


def documents(role: int) -> dict[tuple[str, str], Any]:
    """Return the objects of a manifest by kind and name."""
    text = (ROOT / "deploy" / "kubernetes" / f"server{role}.yaml").read_text(encoding="utf-8")
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text)}


def validate(one: Any) -> None:
    name = f"{KINDS[one['kind']]}.{one['kind']}"
    jsonschema_rs.validate({"$ref": f"#/$defs/{name}", "$defs": SCHEMA["$defs"]}, one)


def pod(role: int) -> Any:
    return documents(role)["StatefulSet", f"server{role}"]["spec"]["template"]["spec"]


def compose(role: int, file: str = "compose.yaml") -> Any:
    text = (ROOT / "deploy" / "compose" / f"server{role}" / file).read_text(encoding="utf-8")
    return yaml.safe_load(text)["services"]


@pytest.mark.parametrize("role", [0, 1])
def test_every_object_is_what_kubernetes_accepts(role: int) -> None:
    for one in documents(role).values():
        validate(one)


def test_a_misspelt_field_is_not_accepted() -> None:
    one = documents(0)["StatefulSet", "server0"]
    one["spec"]["template"]["spec"]["containers"][0]["livenesProbe"] = {}
    with pytest.raises(jsonschema_rs.ValidationError):
        validate(one)


@pytest.mark.parametrize("role", [0, 1])
def test_each_listener_has_a_service_that_leads_to_it(role: int) -> None:
    ports = LISTENERS | ({"peer": 8441} if role == 1 else {})
    found = documents(role)
    (container,) = pod(role)["containers"]
    assert {port["name"]: port["containerPort"] for port in container["ports"]} == ports
    services = {name: one["spec"] for (kind, name), one in found.items() if kind == "Service"}
    assert services.keys() == {f"server{role}-{name}" for name in ports}
    labels = found["StatefulSet", f"server{role}"]["spec"]["template"]["metadata"]["labels"]
    for name, spec in services.items():
        assert spec["selector"].items() <= labels.items()
        assert [port["targetPort"] for port in spec["ports"]] == [name.removeprefix(f"server{role}-")]
    assert "type" not in services[f"server{role}-operator"], "inside the cluster only"


@pytest.mark.parametrize("role", [0, 1])
def test_a_pod_is_closed_limited_and_alone(role: int) -> None:
    spec, (container,) = pod(role), pod(role)["containers"]
    assert documents(role)["StatefulSet", f"server{role}"]["spec"]["replicas"] == 1
    assert spec["securityContext"]["runAsNonRoot"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"].keys() == {"cpu", "memory"}
    assert spec["automountServiceAccountToken"] is False
    writable = {mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"data", "tmp"}


@pytest.mark.parametrize("role", [0, 1])
def test_probes_ask_the_listener_that_never_has_tls(role: int) -> None:
    (container,) = pod(role)["containers"]
    probes = {name: container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")}
    assert probes == {
        "startup": {"path": "/healthz", "port": "metrics"},
        "liveness": {"path": "/healthz", "port": "metrics"},
        "readiness": {"path": "/readyz", "port": "metrics"},
    }
    assert "tls_cert" not in Metrics.model_fields
    assert f"http://127.0.0.1:{LISTENERS['metrics']}/healthz" in compose(role)["server"]["healthcheck"]["test"][-1]


@pytest.mark.parametrize("role", [0, 1])
def test_variables_are_settings(role: int) -> None:
    given = documents(role)["ConfigMap", f"server{role}-environment"]["data"]
    assert given.keys() <= set(known_variables())
    assert compose(role)["server"]["environment"].keys() <= set(known_variables())


@pytest.mark.parametrize("role", [0, 1])
def test_the_file_for_replicas_adds_two_that_share_a_ledger(role: int) -> None:
    [(name, added)] = compose(role, "replicas.yaml").items()
    assert name in compose(role)
    assert added["command"] == ["serve", "--config", "/etc/secemb", "--replicas", "2"]
    assert added["environment"] == {"SECEMB_LEDGER__SHARED": "true"}
    assert "SECEMB_LEDGER__SHARED" in known_variables()
    assert added["ports"] == [f"127.0.0.1:{LISTENERS['metrics'] + 1}:{LISTENERS['metrics'] + 1}"]


@pytest.mark.parametrize("role", [0, 1])
def test_compose_limits_each_container(role: int) -> None:
    for service in compose(role).values():
        assert re.fullmatch(r"\d+g", service["mem_limit"])
        assert service["cpus"] > 0
        assert service["healthcheck"]["test"][0] == "CMD"
