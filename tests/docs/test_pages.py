"""What the documentation says of files, options and syntax is so."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from anabranch.config.cluster import ClusterConfig, parse_cluster
from anabranch.connectors import SINKS, SOURCES, TABLES
from anabranch.connectors.registry import Registry
from anabranch.language.grammar.parser import parse
from anabranch.language.source import Script
from tests.docs.pages import (
    EXAMPLES,
    PAGES,
    ROOT,
    Block,
    anchors,
    blocks,
    links,
    option_rows,
    section,
    table_rows,
)

CONNECTORS = ROOT / "docs" / "connectors.md"
CALLS = [
    *((SOURCES, name, f"Source {name}") for name in SOURCES),
    *((SINKS, name, f"Sink {name}") for name in SINKS),
    *((TABLES, name, f"Table {name}") for name in TABLES),
]


@pytest.mark.parametrize("block", blocks("sql"), ids=lambda block: block.label)
def test_every_sql_block_parses(block: Block) -> None:
    assert parse(Script(block.text, block.page))


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.sql")), ids=lambda file: file.name)
def test_every_example_parses_and_says_how_it_is_started(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert parse(Script(text, file.name))
    assert file.name == "alarm.sql" or f"anabranch run examples/{file.name} --until-idle" in text


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.label)
def test_every_cluster_file_is_valid(block: Block) -> None:
    assert parse_cluster(block.text, block.page).sites


def test_the_defaults_of_the_cluster_table() -> None:
    rows = table_rows(section(ROOT / "docs" / "cluster.md", "[cluster]"))
    cells = [row.strip("| ").split(" | ") for row in rows]
    written = "\n".join(
        f"cluster.{key.strip('`')} = {default.strip('`')}"
        for key, default, _ in cells
        if default.startswith("`")  # else it is described, not written
    )
    assert parse_cluster(f"{written}\n[site.only]") == ClusterConfig.of_sites(["only"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {link}"


@pytest.mark.parametrize(("registry", "name", "title"), CALLS, ids=[call[2] for call in CALLS])
def test_option_tables_are_what_the_code_declares(
    registry: Registry[Any], name: str, title: str
) -> None:
    rows = option_rows(registry, name)
    assert table_rows(section(CONNECTORS, title))[: len(rows)] == rows


def test_every_source_and_sink_has_a_section() -> None:
    kinds = ("source-", "sink-", "table-")
    titles = {anchor for anchor in anchors(CONNECTORS) if anchor.startswith(kinds)}
    titles.remove("table-sources")
    assert titles == {title.lower().replace(" ", "-") for *_, title in CALLS}


def _code() -> str:
    files = (ROOT / "src").rglob("*.py")
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    return re.sub(r'"\s*\n\s*f?"', "", code)  # texts that go on in the next line


def test_every_message_of_the_troubleshooting_table_is_in_the_code() -> None:
    """An ellipsis stands for what is filled in."""
    code = _code()
    rows = table_rows(section(ROOT / "docs" / "operations.md", "Troubleshooting"))
    messages = [text for row in rows for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    for message in messages:
        for part in message.split("…"):
            assert part.strip(" (,:)") in code, message


def test_what_the_tutorial_waits_for_is_said_so() -> None:
    """When to go on in its steps 7 and 9: the lines of `up`, with the names left out."""
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    said = [line for line in page.splitlines() if line.startswith(("sites: ", "site centre died"))]
    said += re.findall(r"^cellar took over .*|^site centre is up again .*", page, re.M)
    assert len(said) == 4
    names = r"kitchen, cellar, centre|centre|cellar|query even|[()]|SIGKILL|14"
    parts = [part.strip() for line in said for part in re.split(names, line) if part.strip(" (:")]
    code = _code()
    assert all(part in code for part in parts), [part for part in parts if part not in code]
    for step, line in ((7, "You need not wait for it"), (9, "once `status` says `protected by`")):
        assert line in page.split(f"## {step}. ")[1].split("\n## ")[0]


@pytest.mark.parametrize(
    ("page", "language", "file"),
    [
        ("README.md", "sql", "alarm.sql"),
        ("tutorial.md", "csv", "tutorial/kitchen.csv"),
        ("tutorial.md", "python", "tutorial/door.py"),
        ("tutorial.md", "sql", "tutorial/house.sql"),
        ("tutorial.md", "toml", "tutorial/cluster.toml"),
    ],
)
def test_what_a_page_shows_is_what_is_shipped(page: str, language: str, file: str) -> None:
    texts = [block.text for block in blocks(language) if block.page == page]
    assert (EXAMPLES / file).read_text(encoding="utf-8") in texts


@pytest.mark.parametrize("page", ["docs/architecture.md", "docs/extending.md", "CONTRIBUTING.md"])
def test_modules_and_files_that_are_named_exist(page: str) -> None:
    package = ROOT / "src" / "anabranch"
    text = (ROOT / page).read_text()
    modules = [
        name
        for name in re.findall(r"(?:`|<br/>|, |→ )([a-z_]+(?:\.[a-z_]+)+)(?=`|\"|,| →)", text)
        if any((root / name.partition(".")[0]).is_dir() for root in (package, ROOT))
        and name != "runtime.blocking"
    ]
    files = re.findall(r"`([\w/]+/(?:\w+\.(?:py|md))?)`", text)
    assert modules or files
    for name in modules:
        paths = [root.joinpath(*name.split(".")) for root in (package, ROOT)]
        there = any(path.is_dir() or path.with_suffix(".py").is_file() for path in paths)
        assert there, f"{page} names {name}"
    for name in files:
        assert (package / name).exists() or (ROOT / name).exists(), f"{page} names {name}"


def test_each_dependency_has_its_reason() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    every = project["dependencies"] + project["optional-dependencies"]["coordinator"]
    needed = {re.split(r"[\[<>=]", name)[0] for name in every}
    page = (ROOT / "docs" / "decisions" / "dependencies.md").read_text()
    named = {
        name for row in table_rows(page) for name in re.findall(r"`([^`]+)`", row.split("|")[1])
    }
    assert named == needed
