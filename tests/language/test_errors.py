"""Each block of `scenarios/*.txt`: a script, a line `->`, and the error that the user reads."""

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
    bind_shed,
    bind_stream,
    bind_table,
    parse,
)
from tests.language.fakes import FakeTyper, bind

FOLDER = Path(__file__).parent / "scenarios"


def scenarios() -> list[tuple[str, str]]:
    blocks = [
        block
        for file in sorted(FOLDER.glob("*.txt"))
        for block in file.read_text(encoding="utf-8").split("\n\n")
        if "\n->\n" in block
    ]
    return [(script, error) for script, error in (block.split("\n->\n") for block in blocks)]


def run(text: str) -> None:
    """Parse `text` and bind what it declares."""
    script = Script(text)
    for statement in parse(script):
        match statement:
            case CreateStream():
                stream = bind_stream(statement, script, default_site="room1", base="")
                if statement.shed:
                    bind_shed(statement.shed, stream, script, FakeTyper())
            case CreateTable():
                bind_table(statement, script, default_site="room1", base="")
            case CreateAggregate():
                bind_aggregate(statement, script, base="")
            case CreateQuery():
                bind(text)


@pytest.mark.parametrize(("text", "expected"), scenarios(), ids=lambda value: value.split("\n")[0])
def test_the_user_reads(text: str, expected: str) -> None:
    with pytest.raises(ScriptError) as caught:
        run(text)
    assert f"{caught.value}\n{caught.value.excerpt}" == expected.rstrip("\n")
