"""What the documentation says of files, options and syntax is so."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from anabranch.config.cluster import Cluster, parse_cluster
from anabranch.language.parser import parse
from anabranch.language.source import Script
from anabranch.site.registry import Registry
from anabranch.site.sinks import SINKS
from anabranch.site.tables import TABLES
from anabranch.site.wrappers import WRAPPERS
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

LANGUAGE = ROOT / "docs" / "language.md"
CALLS = [
    *((WRAPPERS, name, f"Source {name}") for name in WRAPPERS),
    *((SINKS, name, f"Sink {name}") for name in SINKS),
    *((TABLES, name, f"Table {name}") for name in TABLES),
]


@pytest.mark.parametrize("block", blocks("sql"), ids=lambda block: block.label)
def test_every_sql_block_parses(block: Block) -> None:
    assert parse(Script(block.text, block.page))


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block.label)
def test_every_cluster_file_is_valid(block: Block) -> None:
    assert parse_cluster(block.text, block.page).sites


def test_the_defaults_of_the_cluster_table() -> None:
    rows = table_rows(section(ROOT / "docs" / "cluster.md", "[cluster]"))
    cells = [row.strip("| ").split(" | ") for row in rows]
    written = "\n".join(
        f"cluster.{key.strip('`')} = {default.strip('`')}" for key, default, _ in cells
    )
    assert parse_cluster(f"{written}\n[site.only]") == Cluster.of_sites(["only"])


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
    assert table_rows(section(LANGUAGE, title))[: len(rows)] == rows


def test_every_source_and_sink_has_a_section() -> None:
    kinds = ("source-", "sink-", "table-")
    titles = {anchor for anchor in anchors(LANGUAGE) if anchor.startswith(kinds)}
    titles.remove("table-sources")
    assert titles == {title.lower().replace(" ", "-") for *_, title in CALLS}


def test_every_message_of_the_troubleshooting_table_is_in_the_code() -> None:
    """An ellipsis stands for what is filled in."""
    files = (ROOT / "src").rglob("*.py")
    code = "\n".join(file.read_text(encoding="utf-8") for file in files)
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # texts that go on in the next line
    rows = table_rows(section(ROOT / "docs" / "operations.md", "Troubleshooting"))
    messages = [text for row in rows for text in re.findall(r"`([^`]+)`", row.split(" | ")[0])]
    for message in messages:
        for part in message.split("…"):
            assert part.strip(" (,:)") in code, message


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
