"""Devices of the SDK and two real servers, everything through server 0: the model moves as in a plaintext run."""

import asyncio
import json
from pathlib import Path

from tests.e2e.servers import secemb, set_up
from tests.e2e.test_device_rounds import DEVICES, TASK, run_rounds


def test_fifty_relayed_devices_move_the_model_as_a_plaintext_run_does(tmp_path: Path) -> None:
    servers = set_up(tmp_path, devices=DEVICES, changes=TASK, relayed=True)
    assert servers.task.relays
    try:
        servers.start()
        asyncio.run(run_rounds(servers, tmp_path / "homes"))
        received = servers.pair[1].ask("SELECT count(*) FROM sessions")
        assert received == [(3 * DEVICES,)]
        held = json.loads(secemb("relay-key", "list", "--config", servers.pair[1].folder, "--json"))
        assert [key["state"] for key in held] == ["active"]
        for server in servers.pair:
            assert held[0]["not_after"][:10] in relay_line(secemb("check", server.folder))
        made = json.loads(secemb("relay-key", "rotate", "--config", servers.pair[1].folder, "--json"))
        held = json.loads(secemb("relay-key", "list", "--config", servers.pair[1].folder, "--json"))
        assert [key["state"] for key in held] == ["active", "active"]
        assert held[1]["key_id"] == made["key_id"]
        private = json.loads((servers.pair[1].folder / "data" / "relay-keys.json").read_text())
        assert all(key["private"] not in json.dumps(held) for key in private)
        assert all(key["private"] not in servers.pair[1].log.read_text() for key in private)
    finally:
        servers.end()


def relay_line(findings: str) -> str:
    """Return what `secemb check` says about the key that devices seal to."""
    (line,) = [line for line in findings.splitlines() if "relay key" in line]
    assert line.startswith("ok")
    return line
