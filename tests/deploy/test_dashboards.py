"""Dashboard and alerts show what a node really shows, and each alert says what to do."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.deploy.promql import read_promql
from tests.deploy.reading import DEPLOY
from tests.house.tree import ROOT
from tests.processes import free_port
from tests.system.serving import ServedNode

SCRAPED = {"job", "instance"}
"""Labels that Prometheus gives to all that it reads."""
OWN = {"up": set[str]()}
"""Metrics that Prometheus makes by itself."""
DURATION = re.compile(r"\d+[smhd]")

Shown = dict[str, set[str]]


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DEPLOY / "grafana" / "veredus.json").read_text("utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    return [panel for panel in board()["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[str]:
    yield from (alert["expr"] for alert in alerts())
    yield from (target["expr"] for panel in panels() for target in panel["targets"])
    yield from (variable["query"]["query"] for variable in board()["templating"]["list"] if variable["type"] == "query")


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """Each metric of a node that has a publisher and a subscriber, with its labels."""
    port = free_port()
    served = ServedNode(tmp_path_factory.mktemp("node") / "journal", {"LISTEN_METRICS": f"127.0.0.1:{port}"})
    try:
        with (
            served.start() as node,
            node.publisher("trades") as publisher,
            node.subscribe("trades", subscriber="risk") as subscription,
        ):
            publisher.publish("k", b"1")
            assert subscription.next_batch() is not None
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
                families = list(text_string_to_metric_families(response.read().decode()))
    finally:
        served.kill()
    return {sample.name: set(sample.labels) for family in families for sample in family.samples} | OWN


def test_every_metric_and_label_in_an_expression_is_one_that_a_node_shows(shown: Shown) -> None:
    assert len(list(expressions())) > 50
    for expression in expressions():
        read = read_promql(expression)
        assert read.selectors, expression
        known = set(SCRAPED)
        for selector in read.selectors:
            assert selector.metric in shown, expression
            assert set(selector.labels) <= shown[selector.metric] | SCRAPED, expression
            known |= shown[selector.metric]
        assert set(read.grouped) <= known, expression


def test_counters_are_read_as_rates_and_gauges_are_not() -> None:
    for expression in expressions():
        for selector in read_promql(expression).selectors:
            innermost = selector.functions[-1] if selector.functions else ""
            assert (innermost in ("rate", "increase")) is selector.metric.endswith("_total"), expression
            ranges = ("rate", "increase", "deriv", "changes", "predict_linear")
            assert selector.is_range is (innermost in ranges), expression


def test_every_label_in_a_legend_or_a_sentence_is_one_that_its_metrics_have(shown: Shown) -> None:
    texts = [(alert["expr"], text) for alert in alerts() for text in alert["annotations"].values()]
    texts += [(target["expr"], target["legendFormat"]) for panel in panels() for target in panel["targets"]]
    for expression, text in texts:
        known = set.union(SCRAPED, *(shown[selector.metric] for selector in read_promql(expression).selectors))
        named = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", text))
        assert named <= known, text
        assert text.count("{{") == len(
            re.findall(r"\{\{ ?(?:\$labels\.)?\w+ ?\}\}|\{\{ \$value(?: \| \w+)? \}\}", text)
        )


def test_every_alert_has_a_severity_a_time_a_sentence_and_a_page_with_the_cure() -> None:
    names = [alert["alert"] for alert in alerts()]
    assert len(names) == len(set(names))
    for alert in alerts():
        assert re.fullmatch(r"Veredus[A-Z]\w+", alert["alert"])
        assert alert["labels"]["severity"] in ("critical", "warning")
        assert DURATION.fullmatch(alert["for"])
        said = alert["annotations"]
        assert said["summary"].endswith(".")
        assert said["cure"].endswith(".")
        page, _, section = said["page"].partition("#")
        titles = re.findall(r"^#+ (.*)$", (ROOT / page).read_text("utf-8"), re.MULTILINE)
        assert not section or section in {anchor_of(title) for title in titles}, said["page"]


def anchor_of(title: str) -> str:
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def test_the_panels_have_units_and_places_of_their_own() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in board()["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24, panel["title"]
        assert not cells & taken, panel["title"]
        taken |= cells
    assert all(panel["fieldConfig"]["defaults"]["unit"] for panel in panels())
    assert len({panel["id"] for panel in board()["panels"]}) == len(board()["panels"])


def test_every_figure_of_a_node_is_in_the_dashboard_or_is_that_of_a_row(shown: Shown) -> None:
    named = {selector.metric for expression in expressions() for selector in read_promql(expression).selectors}
    missing = {metric for metric in shown if metric.startswith("veredus_")} - named
    assert missing == {"veredus_stream_floor", "veredus_subscription_credit_bytes", "veredus_subscription_live"}
