"""The files of deploy/, and the scrape of the documentation, fit what brokers expose."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from palio.server.journal.journal import Journal
from palio.server.metrics import METRICS, exposition
from palio.server.run import running
from palio.server.settings import Broker, Configuration, Listen
from tests.tables import code, table

ROOT: Final = Path(__file__).parents[1]
ALERTS: Final = ROOT / "deploy" / "prometheus" / "alerts.yml"
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "palio.json"
RULE_TESTS: Final = ROOT / "tests" / "deploy" / "alerts_test.yml"

TEXTS: Final = {
    path.name: path.read_text(encoding="utf-8") for path in (ALERTS, RULE_TESTS, DASHBOARD)
}

SUFFIXES: Final = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}

LABELS: Final = {"instance", "job", "le"}
"""Labels that Prometheus adds."""


def promtool(*arguments: str | Path) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        pytest.skip("promtool is not installed; it comes with Prometheus")
    done = subprocess.run([tool, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(TEXTS[DASHBOARD.name])["panels"]
    return found


def shown() -> list[str]:
    """The expressions of the dashboard."""
    return [target["expr"] for panel in panels() for target in panel.get("targets", ())]


@pytest.mark.parametrize("name", TEXTS)
async def test_every_metric_that_is_named_is_one_of_a_broker(name: str, tmp_path: Path) -> None:
    configuration = Configuration(
        broker=Broker(name="b1", data_dir=str(tmp_path)), listen=Listen(port=0)
    )
    async with running(configuration) as found:
        assert isinstance(found.server.journal, Journal)
        text = exposition(found.server, found.server.journal.counters)().decode()
    exposed = {
        family.name + suffix
        for family in text_string_to_metric_families(text)
        for suffix in SUFFIXES.get(family.type, ("",))
    }
    named = set(re.findall(r"\b(?:palio|process)_[a-z_]+", TEXTS[name]))
    assert named
    assert named <= exposed


def test_every_label_that_is_asked_for_is_one_of_its_metric() -> None:
    own = {measure.name: {measure.label} - {""} for measure in METRICS}
    asked = "\n".join([TEXTS[ALERTS.name], *shown()])
    selectors = re.findall(r"\b(palio_[a-z_]+)\{([^}]*)\}", asked)
    assert selectors
    for metric, selector in selectors:
        name = re.sub(r"_(total|bucket|count|sum)$", "", metric)
        assert set(re.findall(r"(\w+)\s*=", selector)) <= own[name] | LABELS, metric


def test_every_kind_of_rejection_is_an_event_of_the_log() -> None:
    events = {code(row["event"]) for row in table("Logs", "server.md")}
    kinds = re.findall(r'kind=~"([a-z_|]+)"', TEXTS[ALERTS.name])
    assert kinds
    assert {kind for each in kinds for kind in each.split("|")} <= events


def test_every_alert_is_tested() -> None:
    alerts = re.findall(r"alert: (\w+)", TEXTS[ALERTS.name])
    tested = TEXTS[RULE_TESTS.name]
    assert set(alerts) == set(re.findall(r"alertname: (\w+)\n +exp_alerts", tested))


def test_alerts_fire_when_they_should_and_else_not() -> None:
    promtool("check", "rules", ALERTS)
    promtool("test", "rules", RULE_TESTS)


def test_the_scrape_of_the_documentation_is_a_configuration(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "server.md").read_text(encoding="utf-8")
    (sample,) = re.findall(r"```yaml\n(.*?scrape_configs.*?)```", page, re.DOTALL)
    assert "scheme: https" in sample
    (tmp_path / "prometheus.yml").write_text(sample, encoding="utf-8")
    shutil.copy(ALERTS, tmp_path / "alerts.yml")
    promtool("check", "config", "--syntax-only", tmp_path / "prometheus.yml")


def test_the_expressions_of_the_dashboard_are_promql(tmp_path: Path) -> None:
    rules = [
        {"record": f"r{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, expression in enumerate(shown())
    ]
    path = tmp_path / "rules.yml"  # JSON is YAML
    path.write_text(json.dumps({"groups": [{"name": "g", "rules": rules}]}), encoding="utf-8")
    promtool("check", "rules", path)


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in panels()
        for grid in [panel["gridPos"]]
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    numbers = [panel["id"] for panel in panels()]
    assert len(numbers) == len(set(numbers))
