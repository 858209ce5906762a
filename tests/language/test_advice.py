"""Whoever does as an error says gets on: each block of `advice.txt` is a text that is refused, and
below the arrow what its error tells one to write instead."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from anabranch.errors import ScriptError
from anabranch.language import (
    CreateAggregate,
    CreateQuery,
    CreateStream,
    CreateTable,
    Script,
    bind_aggregate,
    bind_query,
    bind_stream,
    bind_table,
    parse,
)
from anabranch.language.expressions import functions
from anabranch.language.grammar import translations
from anabranch.plan.catalog import AnyDef
from tests.language.fakes import KNOWN, FakeTyper, bind

FILE = Path(__file__).parent / "advice.txt"


def blocks() -> list[tuple[str, str]]:
    found = FILE.read_text(encoding="utf-8").strip().split("\n\n")
    return [(refused, advised) for refused, advised in (one.split("\n->\n") for one in found)]


def run(text: str) -> None:
    """Parse `text` and bind what it declares, each statement knowing those before it."""
    script = Script(text)
    known = dict(KNOWN)
    for statement in parse(script):
        made: AnyDef | None = None
        match statement:
            case CreateStream():
                made = bind_stream(statement, script, default_site="room1", base="")
            case CreateTable():
                made = bind_table(statement, script, default_site="room1", base="")
            case CreateAggregate():
                made = bind_aggregate(statement, script, base="")
            case CreateQuery():
                made = bind_query(
                    statement,
                    script,
                    lambda name: known.get(name.lower()),
                    list(known),
                    FakeTyper(),
                    base="",
                )
        if made:
            known[made.name.lower()] = made


def refusal(text: str) -> ScriptError:
    with pytest.raises(ScriptError) as caught:
        run(text)
    return caught.value


@pytest.mark.parametrize(
    ("refused", "advised"), blocks(), ids=lambda value: value.split("\n")[0][:70]
)
def test_what_is_advised_is_taken(refused: str, advised: str) -> None:
    assert refusal(refused).remedy
    run(advised)


def _remedies() -> Iterable[str]:
    """All that say what to write instead of other systems' words."""
    for table in (
        translations.FUNCTIONS,
        translations._JOINS,
        functions._WINDOWS,
        functions._UNREPEATABLE,
    ):
        yield from (remedy for _, remedy in table.values())
    for words in (
        translations._STATEMENTS,
        translations._CREATIONS,
        translations._CLAUSES,
        translations.ENDLESS,
        functions._RANKINGS,
    ):
        yield from words.values()
    yield from (translations.DISTINCT, translations.DISTINCT_IN, translations.UNENDED)


def test_all_advice_for_words_of_other_systems_is_tried() -> None:
    tried = {refusal(refused).remedy for refused, _ in blocks()}
    assert set(_remedies()) - tried == set()


def test_a_stream_among_tables_needs_no_window() -> None:
    """It is the window of its own instant, so a row of the table that changes later adds nothing to
    what older tuples gave."""
    plain, written = (
        bind(f"CREATE QUERY q AS SELECT Temp, name FROM {stream}, Rooms WHERE Room = name")
        for stream in ("Sensor1", "Sensor1[1us]")
    )
    assert plain.written == written.written
