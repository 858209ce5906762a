"""The dashboard in a real browser: every view, a query submitted, a site killed and taken over."""

from __future__ import annotations

import json
import os
import re
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.e2e.commands import anabranch, start, wait_until

ARTIFACTS = Path(os.environ.get("ANABRANCH_ARTIFACTS", "artifacts"))
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
]
CLUSTER = """
[site.room]
[site.centre]
isolation = "process"
[site.attic]
isolation = "process"
"""
SCRIPT = """
CREATE STREAM sensor (value BIGINT) FROM rate(tps = 20) AT room;
CREATE QUERY even AS SELECT value FROM sensor WHERE value % 2 = 0 STANDBY AT centre;
"""
pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.timeout(400)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("dashboard")


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    (folder / "cluster.toml").write_text(CLUSTER)
    (folder / "script.sql").write_text(SCRIPT)
    process = start(["up", "--cluster", "cluster.toml", "--http", "127.0.0.1:0"], folder)
    log = folder / "log"
    try:
        wait_until(lambda: "Ctrl-C" in log.read_text() or process.poll() is not None, "up", 180)
        made = anabranch("sql", "-f", "script.sql", cwd=folder)
        assert made.returncode == 0, made.stderr
        yield re.search(r"http://\S+", log.read_text())[0]
    finally:
        anabranch("down", cwd=folder)
        process.wait(timeout=60)


@pytest.fixture
def page(address: str, folder: Path) -> Iterator[Page]:
    """A page that has been let in; nothing may be wrong on its console."""
    assert CHROMIUM, "no chromium: apt-get install chromium"
    ARTIFACTS.mkdir(exist_ok=True)
    wrong: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        opened = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
        opened.set_default_timeout(60_000)
        opened.on("console", lambda one: wrong.append(one.text) if one.type == "error" else None)
        opened.on("pageerror", lambda error: wrong.append(str(error)))
        opened.goto(anabranch("dashboard", cwd=folder).stdout.strip())
        yield opened
        browser.close()
    assert wrong == []


def base(address: str) -> str:
    return address.partition("?")[0]


def test_views_open_and_a_query_is_submitted(page, address):
    expect(page.get_by_text("3 of 3 sites up")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("cell", name="even").first).to_be_visible(timeout=60_000)
    page.screenshot(path=ARTIFACTS / "system.png")
    page.goto(base(address) + "sql")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.type("CREATE QUERY odd AS SELECT vlaue FROM sensor WHERE value % 2 = 1;")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("Did you mean 'value'?")).to_be_visible(timeout=60_000)
    expect(page.locator(".a-wrong")).to_have_text("vlaue")
    page.screenshot(path=ARTIFACTS / "sql.png")
    page.locator(".cm-content").click()
    page.keyboard.press("Control+A")
    page.keyboard.type("CREATE QUERY odd AS SELECT value FROM sensor WHERE value % 2 = 1;")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_text("query odd created at")).to_be_visible(timeout=60_000)
    page.goto(base(address) + "query/odd")
    expect(page.get_by_text("as it runs")).to_be_visible(timeout=60_000)
    page.get_by_role("switch").click()
    expect(page.get_by_role("columnheader", name="_pos")).to_be_visible(timeout=60_000)
    page.screenshot(path=ARTIFACTS / "query.png")


def test_a_kill_and_its_take_over_are_one_story(page, address):
    wait_until(lambda: _protected(page), "protected", 120)
    answer = page.evaluate("fetch('/api/sites/centre/kill', {method: 'POST'}).then(r => r.json())")
    assert answer["killed"] > 1
    page.goto(base(address) + "timeline")
    story = page.locator(".q-card", has_text="site centre was killed")
    expect(story).to_contain_text("attic has taken even over from centre", timeout=60_000)
    expect(story).to_contain_text("even is protected by", timeout=120_000)
    page.screenshot(path=ARTIFACTS / "timeline.png")


def _protected(page: Page) -> bool:
    seen = page.evaluate("fetch('/api/system').then(r => r.json())")
    even = next((one for one in seen["queries"] if one["name"] == "even"), None)
    return bool(even and even["protection"] and even["protection"]["protected"])


def test_a_report_is_one_file(address, folder):
    done = anabranch("report", "run.html", cwd=folder)
    assert done.returncode == 0, done.stderr
    text = (folder / "run.html").read_text()
    assert "<h2>even</h2>" in text
    assert not re.search(r"(src|href)=", text)


def test_programs_follow_events_and_rows(address, folder):
    token = anabranch("token", cwd=folder).stdout.strip()

    def get(path: str) -> str:
        request = urllib.request.Request(base(address) + path)
        request.add_header("Authorization", f"Bearer {token}")
        with urllib.request.urlopen(request, timeout=90) as answer:
            return answer.read().decode()

    told = get("api/events?count=2")
    assert told.count("event: system\n") == 1
    assert told.count("event: delta\n") == 2
    rows = [
        json.loads(line[6:])
        for line in get("api/tail/even?limit=3").splitlines()
        if line.startswith("data: ")
    ]
    assert [row["value"] % 2 for row in rows] == [0, 0, 0]
    assert [row["_pos"] - rows[0]["_pos"] for row in rows] == [0, 1, 2]
    assert "anabranch_query_rate_out" in get("api/metrics")


def test_a_stranger_logs_in_with_the_token_and_the_page_loads_nothing_from_elsewhere(
    address, folder
):
    token = anabranch("token", cwd=folder).stdout.strip()
    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page()
        page.on("request", lambda one: asked.append(one.url))
        page.goto(base(address))
        page.get_by_label("Token").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("This is not the token.")).to_be_visible(timeout=60_000)
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_text("3 of 3 sites up")).to_be_visible(timeout=60_000)
        (cookie,) = page.context.cookies()
        assert token not in cookie["value"]
        assert cookie["httpOnly"]
        assert cookie["sameSite"] == "Strict"
        page.goto(base(address) + "api/docs")
        expect(page.get_by_text("/api/statements")).to_be_visible()
        page.goto(base(address) + "api/report")
        expect(page.get_by_role("heading", name="Queries")).to_be_visible()
        browser.close()
    assert {one for one in asked if not one.startswith((base(address), "data:"))} == set()


def test_pages_of_another_port_send_nothing_with_the_cookie(page, address):
    """They are of the same site, so the browser sends our cookie with what they ask."""
    own = base(address).rstrip("/")

    def elsewhere(route):
        route.fulfill(body="<html><body>elsewhere</body></html>", content_type="text/html")

    evil = page.context.new_page()
    evil.route("http://127.0.0.1:1/**", elsewhere)
    evil.goto("http://127.0.0.1:1/")
    sent: list[str] = []
    evil.on("request", lambda one: sent.append(one.url) if one.url.startswith(own) else None)
    said = evil.evaluate(
        """async own => {
            const paths = ['/api/stop', '/api/system',
                           '/_nicegui_ws/socket.io/?EIO=4&transport=polling'];
            for (const method of ['POST', 'GET'])
                for (const path of paths)
                    await fetch(own + path, {method, credentials: 'include', mode: 'no-cors'})
                        .catch(() => null);
            const socket = new WebSocket(
                own.replace('http', 'ws') + '/_nicegui_ws/socket.io/?EIO=4&transport=websocket');
            return await new Promise(done => {
                socket.onopen = () => done('opened');
                socket.onclose = () => done('closed');
            });
        }""",
        own,
    )
    assert said == "closed"
    assert len(sent) >= 6
    evil.set_content(f"<iframe src='{own}/sql'></iframe>")
    evil.wait_for_timeout(1000)
    assert not any(frame.url.startswith(own) and "SQL" in frame.content() for frame in evil.frames)
    assert page.evaluate("fetch('/api/system').then(r => r.status)") == 200
