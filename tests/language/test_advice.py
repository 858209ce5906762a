"""Whoever does as an error says gets on: each block of `advice.txt` is a text that is refused, and
below the arrow what its error tells one to write instead."""

from __future__ import annotations

import ast
import traceback
from collections.abc import Iterable
from pathlib import Path

import pytest

from anabranch import language
from anabranch.errors import ScriptError
from anabranch.language import (
    CreateAggregate,
    CreateQuery,
    CreateStream,
    CreateTable,
    Script,
    Span,
    bind_aggregate,
    bind_query,
    bind_shed,
    bind_stream,
    bind_table,
    parse,
)
from anabranch.language.binding.approximate import bind_approximate
from anabranch.language.expressions import functions
from anabranch.language.grammar import translations
from anabranch.plan.catalog import AnyDef, ApproximateDef, PocketDef, StreamDef
from anabranch.plan.spec import Program
from tests.language.fakes import KNOWN, FakeTyper, bind, sensor

FILE = Path(__file__).parent / "advice.txt"


def estimates() -> ApproximateDef:
    text = (
        "CREATE QUERY estimates AS SELECT Room, avg(Temp) AS a FROM Sensor1[10s] GROUP BY Room"
        " APPROXIMATE WITHIN 0.5 CONFIDENCE 90%"
        " INTO postgres(url = 'postgresql://h/d', table = 't')"
    )
    (statement,) = parse(Script(text))
    assert isinstance(statement, CreateQuery)
    return bind_approximate(Script(text), statement, bind(text), ("room1", "room2"))


OTHERS: dict[str, AnyDef] = {
    "alarm": PocketDef(
        name="Alarm",
        input="Sensor1",
        output="alarms",
        site="room1",
        program=Program(path="alarms.py", code="", class_name="Alarm"),
    ),
    "alarms": StreamDef(name="alarms", columns=sensor().columns, site="room1"),
    "estimates": estimates(),
}
"""What a small catalog has besides streams, queries and tables."""


def blocks() -> list[tuple[str, str]]:
    found = FILE.read_text(encoding="utf-8").strip().split("\n\n")
    return [(refused, advised) for refused, advised in (one.split("\n->\n") for one in found)]


def run(text: str) -> None:
    """Parse `text` and bind what it declares, each statement knowing those before it."""
    script = Script(text)
    known: dict[str, AnyDef] = {**KNOWN, **OTHERS}
    for statement in parse(script):
        made: AnyDef | None = None
        match statement:
            case CreateStream():
                made = bind_stream(statement, script, default_site="room1", base="")
                if statement.shed:
                    bind_shed(statement.shed, made, script, FakeTyper())
            case CreateTable():
                made = bind_table(statement, script, default_site=None, base="")
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
                if asked := statement.approximate:
                    sites = [site.text for site in asked.sites]
                    made = bind_approximate(script, statement, made, sites)
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


def test_all_advice_of_the_binder_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that makes an error with a remedy is come to by one of the texts."""
    come_to: set[tuple[str, int]] = set()
    make = Script.error

    def error(script: Script, span: Span, message: str, remedy: str = "") -> ScriptError:
        if remedy:
            come_to.update((one.filename, one.lineno or 0) for one in traceback.extract_stack())
        return make(script, span, message, remedy)

    monkeypatch.setattr(Script, "error", error)
    for refused, _ in blocks():
        refusal(refused)
    left = [
        f"{file.name}:{first}"
        for file, first, last in _places_of_advice()
        if not any((str(file), line) in come_to for line in range(first, last + 1))
    ]
    assert left == []


def _places_of_advice() -> Iterable[tuple[Path, int, int]]:
    """The calls of `error` with a remedy in the binder: file, first and last line."""
    for folder in ("binding", "expressions"):
        for file in sorted((Path(language.__file__).parent / folder).glob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if (
                    isinstance(node, ast.Call)
                    and isinstance(node.func, ast.Attribute)
                    and node.func.attr == "error"
                    and len(node.args) > 2
                ):
                    yield file, node.lineno, node.end_lineno or node.lineno


def test_a_stream_among_tables_needs_no_window() -> None:
    """It is the window of its own instant, so a row of the table that changes later adds nothing to
    what older tuples gave."""
    plain, written = (
        bind(f"CREATE QUERY q AS SELECT Temp, name FROM {stream}, Rooms WHERE Room = name")
        for stream in ("Sensor1", "Sensor1[1us]")
    )
    assert plain.written == written.written
