"""Every figure of the inventory is there, documented, and readable by Prometheus' own parser."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from anabranch.face.metrics import INVENTORY, system_exposition
from anabranch.face.snapshot import snapshot
from simulation.reports import a_source
from tests.cli.statuses import site, standby, status, task

DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


def test_the_exposition_holds_what_the_system_says():
    seen = status(
        site("centre", task("q", "centre", inputs=("s",)), a_source("s", "centre", late=2)),
        site("centre2", standby("q", "centre2"), task("r", "centre2", inputs=("q",))),
        reads={"q": ("s",), "r": ("q",)},
    )
    families = {
        one.name: one
        for one in text_string_to_metric_families(system_exposition(snapshot(seen, 1.0)))
    }
    assert set(families) == {one.name for one in INVENTORY}
    (up, _) = families["anabranch_site_up"].samples
    assert (up.labels, up.value) == ({"site": "centre"}, 1.0)
    (late,) = families["anabranch_stream_left_out"].samples
    assert (late.labels["reason"], late.value) == ("late", 2.0)
    (link,) = families["anabranch_link_rate"].samples
    assert link.labels == {"sender": "centre", "receiver": "centre2"}
    assert families["anabranch_query_protected"].samples[0].value == 1.0


def test_the_inventory_is_documented():
    text = DOCS.read_text(encoding="utf-8")
    assert [one.name for one in INVENTORY if f"`{one.name}`" not in text] == []


def test_the_grafana_dashboard_shows_what_there_is():
    board = json.loads((DOCS.parent / "grafana.json").read_text(encoding="utf-8"))
    asked = {
        name.removesuffix("_total")
        for panel in board["panels"]
        for one in panel["targets"]
        for name in re.findall(r"anabranch_\w+", one["expr"])
    }
    assert asked <= {one.name for one in INVENTORY}
    assert len(board["panels"]) == len({panel["id"] for panel in board["panels"]})
