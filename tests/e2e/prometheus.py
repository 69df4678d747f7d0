"""Debian's Prometheus: its rule checker, and a real server that scrapes a pair."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.e2e.servers import wait_for

from secemb_tools.local.process import HERE, free_ports

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
RULES = [DEPLOY / "prometheus" / name for name in ("alerts.yml", "slo.yml")]
DASHBOARD = DEPLOY / "grafana" / "secemb.json"
MISSING = "there is no Prometheus: apt-get install prometheus"


def find_program(name: str, environment: Mapping[str, str]) -> str | None:
    """Return where a program of Prometheus is, or None; with PROMETHEUS_TESTS=required its absence is a failure."""
    found = shutil.which(name, path=environment.get("PATH", os.defpath))
    if found is None and environment.get("PROMETHEUS_TESTS") == "required":
        raise RuntimeError(f"{MISSING}; PROMETHEUS_TESTS=required, and build/prometheus.log may say why there is none")
    return found


PROMETHEUS, PROMTOOL = find_program("prometheus", os.environ), find_program("promtool", os.environ)
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None or PROMTOOL is None, reason=MISSING)


def queries() -> list[str]:
    """Return every query of the dashboard, over all servers."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [query.replace("$instance", ".*").replace("$task", ".*") for query in found]


def names_in(text: str) -> set[str]:
    """Return the metrics that rules or queries name."""
    return set(re.findall(r"\b(?:secemb|process)[_:][a-z0-9_:]+", text))


class Server:
    """A running Prometheus."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, path: str, **words: str) -> Any:
        """Return the data of an answer of the HTTP API."""
        answer = httpx.get(f"{self._url}/api/v1/{path}", params=words, timeout=30, trust_env=False)
        found = answer.json()
        assert found["status"] == "success", f"{words}: {found}"
        return found["data"]

    def samples(self, query: str) -> list[Any]:
        """Return what a query finds now."""
        found: list[Any] = self.ask("query", query=query)["result"]
        return found


@contextmanager
def scraping(folder: Path, targets: Sequence[str]) -> Iterator[Server]:
    """Run a Prometheus with our rules that scrapes these addresses every second."""
    config, port = folder / "prometheus.yml", free_ports(1)[0]
    scrape = {"job_name": "secemb", "static_configs": [{"targets": list(targets)}]}
    every = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    config.write_text(json.dumps({"global": every, "rule_files": list(map(str, RULES)), "scrape_configs": [scrape]}))
    command = [str(PROMETHEUS), f"--config.file={config}", f"--storage.tsdb.path={folder / 'series'}"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen([*command, f"--web.listen-address={HERE}:{port}"], stdout=log, stderr=log)
    url = f"http://{HERE}:{port}"
    try:
        wait_for("Prometheus starts", lambda: _answers(f"{url}/-/ready"))
        yield Server(url)
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
