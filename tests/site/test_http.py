"""A site's HTTP port: health for anybody, figures for who has the token, and nothing else."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from anabranch.config.address import HostPort
from anabranch.errors import SetupError
from anabranch.link.gate import Credentials
from anabranch.link.reports import SiteReport
from anabranch.site.http.metrics import INVENTORY, site_exposition
from anabranch.site.http.server import SiteHttp
from simulation.reports import a_site, a_source, a_task, guarding

DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


def report() -> SiteReport:
    return a_site(
        "centre",
        a_source("s", "centre", rows=5, late=2),
        a_task("q", "centre", deadline_ms=100.0, judged=10, late=1, p50_ms=1.0, p99_ms=2.0),
        a_task("r", "centre", "standby", standby=guarding()),
        kept={"s": (3, 120)},
        round_trips={"attic": 0.02},
    )


@pytest.fixture
def well() -> dict[str, bool]:
    return {"ready": True}


@pytest.fixture
def served(well: dict[str, bool]) -> Iterator[SiteHttp]:
    made = SiteHttp(HostPort("127.0.0.1", 0), Credentials("right"), report, lambda: well["ready"])
    yield made
    made.close()


def get(url: str, token: str = "") -> tuple[int, str]:
    request = urllib.request.Request(url)
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_every_figure_is_there_and_readable() -> None:
    families = {one.name: one for one in text_string_to_metric_families(site_exposition(report()))}
    assert set(families) == {one.name for one in INVENTORY}
    primary, secondary = families["anabranch_task_epoch"].samples
    assert primary.labels == {"site": "centre", "query": "q", "task": "q", "role": "primary"}
    assert secondary.labels["role"] == "standby"
    assert families["anabranch_task_late"].samples[0].value == 1.0
    assert families["anabranch_outlet_kept_bytes"].samples[0].value == 120.0
    assert families["anabranch_round_trip_seconds"].samples[0].labels["other"] == "attic"


def test_the_inventory_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [one.name for one in INVENTORY if f"`{one.name}`" not in text] == []


def test_health_and_readiness_are_open(served: SiteHttp, well: dict[str, bool]) -> None:
    assert get(served.url + "health") == (200, json.dumps({"status": "ok"}))
    assert get(served.url + "ready?x=1")[0] == 200
    well["ready"] = False
    assert get(served.url + "ready") == (503, json.dumps({"ready": False}))


@pytest.mark.parametrize("path", ["", "metrics", "metrics/", "api/system", "health/x", "%2e%2e/x"])
@pytest.mark.parametrize("token", ["", "wrong"])
def test_nothing_else_is(served: SiteHttp, path: str, token: str) -> None:
    status, body = get(served.url + path, token)
    assert status == 401
    assert "anabranch_" not in body


def test_the_token_opens_the_figures_and_nothing_else(served: SiteHttp) -> None:
    status, body = get(served.url + "metrics", "right")
    assert (status, body) == (200, site_exposition(report()))
    assert get(served.url + "metrics", Credentials("right").reader_token) == (status, body)
    assert get(served.url + "other", "right")[0] == 404


def test_a_caller_who_says_nothing_holds_up_nobody(served: SiteHttp) -> None:
    port = int(served.url.rpartition(":")[2].rstrip("/"))
    with socket.create_connection(("127.0.0.1", port)):
        assert get(served.url + "health")[0] == 200


def test_only_get_is_answered(served: SiteHttp) -> None:
    request = urllib.request.Request(served.url + "metrics", data=b"x", method="POST")
    request.add_header("Authorization", "Bearer right")
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)
    with caught.value as error:
        assert error.code == 501


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SetupError, match=f"cannot listen on 127.0.0.1:{port}"):
            SiteHttp(HostPort("127.0.0.1", port), Credentials("t"), report, lambda: True)
