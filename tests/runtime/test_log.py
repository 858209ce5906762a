"""The log: a JSON object a line, in the order of the documentation; nothing unless asked for."""

from __future__ import annotations

import json
import re
from pathlib import Path

from anabranch.runtime.log import FIELDS, log_no_more, log_to, note

DOCS = Path(__file__).parents[2] / "docs" / "operations.md"


def test_a_line_says_what_it_is_about(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    note("lost", "nobody listens yet")
    handler = log_to(path)
    note("started", "q\nstarted", site="centre", query="q", task="q", epoch=3)
    note("failed", "größer", wrong=True, query="q", site="")
    log_no_more(handler)
    note("lost", "nobody listens any more")
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert list(first) == list(FIELDS)
    assert (first["level"], first["epoch"], first["text"]) == ("info", 3, "q\nstarted")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first["time"])
    assert {key: second[key] for key in second if key != "time"} == {
        "level": "error",
        "event": "failed",
        "text": "größer",
        "query": "q",
    }


def test_nothing_is_written_before_something_happens(tmp_path: Path) -> None:
    log_no_more(log_to(tmp_path / "log.jsonl"))
    assert list(tmp_path.iterdir()) == []


def test_the_fields_are_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [one for one in FIELDS if f"`{one}`" not in text] == []
