"""Rules, alerts and the dashboard: valid, about what exists, and answered by a real Prometheus that scrapes a pair."""

import asyncio
import json
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.prometheus import (
    DASHBOARD,
    DEPLOY,
    PROMTOOL,
    ROOT,
    RULES,
    find_program,
    names_in,
    needs_prometheus,
    queries,
    scraping,
)
from tests.e2e.servers import wait_for

from secemb_lab.loadtest.fleet import run_fleet
from secemb_lab.loadtest.loadtest import task_for
from secemb_party.http.problems import PROBLEMS
from secemb_party.metrics import RESTING, Metrics
from secemb_tools.catalogues import PaperCatalogue
from secemb_tools.local import Pair
from secemb_tools.local.process import HERE

TESTS = ROOT / "tests" / "e2e" / "prometheus_rules.yml"
PANELS = {"row", "stat", "timeseries", "state-timeline", "table", "text"}  # of Grafana itself
# What a pair without noise, evaluations and refusals has no samples of.
NOT_HERE = re.compile(
    r"secemb_privacy_|secemb_quality|secemb_panel_quality|secemb_refusals_total.*> 0$|secemb_drain(ing|ed).*== 1$"
)


def test_every_rule_and_panel_is_about_a_metric_that_exists() -> None:
    text = "".join(path.read_text() for path in [*RULES, DASHBOARD])
    recorded = set(re.findall(r'record: "?(secemb:[\w:]+)', text))
    families = set(re.findall(r"# TYPE (\w+) ", Metrics().render().decode()))
    for name in names_in(text):
        assert name in families | recorded or re.sub(r"_(count|sum|bucket)$", "", name) in families, name
    assert set(re.findall(r'problem="([a-z-]+)"', text)) <= set(PROBLEMS)


def test_no_version_is_owed_in_the_phases_in_which_its_age_does_not_grow() -> None:
    (phases,) = re.findall(
        r'unless on \(instance, task\) secemb_round_phase\{phase=~"([a-z|-]+)"', RULES[1].read_text()
    )
    assert set(phases.split("|")) == set(RESTING)
    metrics = Metrics().of_task(bytes(32))

    def age() -> float:
        return next(value for name, _, value in metrics.figures() if name == "secemb_model_age_seconds")

    metrics.model_version(1, 0.0)
    metrics.task_phase("waiting", number=1, since=0.0)
    time.sleep(0.05)
    assert age() == 0
    metrics.task_phase("open", number=1, since=0.0)
    time.sleep(0.05)
    assert (grown := age()) >= 0.05
    metrics.task_phase("waiting", number=2, since=0.0)
    at_rest = age()
    assert age() == at_rest >= grown
    metrics.model_version(2, 0.0)
    assert age() == 0


def test_every_panel_that_an_operator_needs_is_on_the_dashboard() -> None:
    shown = DASHBOARD.read_text()
    elsewhere = {"secemb_event_loop_lag_largest_seconds", "secemb_privacy_rounds_ahead"}
    inside = {"secemb_round_phase_start_timestamp_seconds", "secemb_round_upload_seconds", "secemb_model_age_seconds"}
    for family in re.findall(r"# TYPE (secemb_\w+) ", Metrics().render().decode()):
        assert family in shown or family in elsewhere | inside, f"no panel shows {family}"


def faults(dashboard: dict[str, Any]) -> set[str]:
    """Return what Grafana would not lay out or not find in a dashboard."""
    panels, found = dashboard["panels"], set()
    if len({panel["id"] for panel in panels}) != len(panels):
        found.add("two panels have one id")
    cells: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        own = {(at["x"] + right, at["y"] + down) for right in range(at["w"]) for down in range(at["h"])}
        if own & cells or not own or not all(0 <= right < 24 for right, _ in own):
            found.add(f"{panel['title']} does not fit into the grid")
        cells |= own
        targets = panel.get("targets", [])
        if panel["type"] not in PANELS or (panel["type"] != "row") != bool(targets):
            found.add(f"{panel['title']} is of type {panel['type']} with {len(targets)} queries")
        if len({target["refId"] for target in targets}) != len(targets):
            found.add(f"two queries of {panel['title']} have one name")
    used = set(re.findall(r"\$\{?([a-z]\w*)", json.dumps(dashboard)))
    for name in used ^ {one["name"] for one in dashboard["templating"]["list"]}:
        found.add(f"the variable {name} is used or defined, not both")
    return found


def test_the_dashboard_is_one_that_grafana_can_lay_out() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    assert faults(dashboard) == set()
    first, second, third = (panel for panel in dashboard["panels"][1:4])
    first["id"] = second["id"]
    second["gridPos"] = third["gridPos"]
    third["targets"][0]["expr"] = "up{job='$job'}"
    assert len(faults(dashboard)) == 3


def test_every_alert_is_explained() -> None:
    explained = (ROOT / "docs" / "operating.md").read_text()
    for alert in re.findall(r"alert: (\w+)", "".join(path.read_text() for path in RULES)):
        assert f"| {alert} |" in explained


def test_a_prometheus_that_is_required_and_missing_fails_with_the_fix(tmp_path: Path) -> None:
    assert find_program("promtool", {"PATH": str(tmp_path)}) is None
    with pytest.raises(RuntimeError, match="apt-get install prometheus"):
        find_program("promtool", {"PATH": str(tmp_path), "PROMETHEUS_TESTS": "required"})
    script = (ROOT / ".ci" / "run").read_text()
    assert 0 < script.index("PROMETHEUS_TESTS=required") < script.index("make test")


def promtool(*words: object) -> None:
    """Run the checker; it must be satisfied."""
    done = subprocess.run([str(PROMTOOL), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_prometheus
def test_rules_fire_when_they_must_and_only_then() -> None:
    promtool("check", "rules", *RULES)
    promtool("check", "config", "--syntax-only", DEPLOY / "prometheus" / "scrape.yml")
    promtool("test", "rules", TESTS)


@needs_prometheus
def test_a_planted_fault_in_a_rule_is_found(tmp_path: Path) -> None:
    for path in RULES:
        (tmp_path / path.name).write_text(path.read_text().replace("14.4 *", "144 *"))
    head, *cases = TESTS.read_text().replace("../../deploy/prometheus/", "").split("\n  - name: ")
    (short,) = [case for case in cases if case.startswith("a model that gets no new version")]
    tests = tmp_path / TESTS.name
    tests.write_text(f"{head}\n  - name: {short}")
    with pytest.raises(AssertionError, match="SecEmbSloBurnsFast"):
        promtool("test", "rules", tests)


@needs_prometheus
def test_a_prometheus_that_scrapes_a_pair_answers_every_query(tmp_path: Path) -> None:
    pair = Pair(tmp_path, task_for(PaperCatalogue("small", 200, 10), cohort=2), relayed=True)
    with pair.running():
        asyncio.run(run_fleet(pair, devices=2, rounds=1))
        with scraping(tmp_path, [f"{HERE}:{server.ports.metrics}" for server in pair.servers]) as prometheus:
            rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
            assert len(rules) == sum(len(re.findall(r"(?:alert|record): ", path.read_text())) for path in RULES)
            wait_for("two scrapes", lambda: bool(prometheus.samples("rate(secemb_rounds_total[1m])")))
            wait_for("recorded", lambda: bool(prometheus.samples('secemb:slo_errors:ratio_rate3d{slo="update"}')))
            for query in queries():
                found = prometheus.samples(query)
                assert found or NOT_HERE.search(query), query
            rules = [rule for group in prometheus.ask("rules")["groups"] for rule in group["rules"]]
            assert {rule["health"] for rule in rules} == {"ok"}, [rule for rule in rules if rule["health"] != "ok"]
            expiring = {one["metric"]["of"] for one in prometheus.samples("secemb_expiry_timestamp_seconds > time()")}
            assert expiring == {"own-certificate", "peer-certificate", "relay-key"}
