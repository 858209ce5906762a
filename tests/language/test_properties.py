"""What holds for any text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import ScriptError
from anabranch.language import CreateQuery, CreateStream, Script, bind_stream, is_complete, parse
from anabranch.language.lexer import tokenize
from tests.language.fakes import bind

SCRIPTS = [
    "CREATE STREAM Sensor1 ( Temp DOUBLE , a DECIMAL(10,2) , s STRUCT<a: INT> ) TIMESTAMP ts"
    " LATENESS 500 ms FROM file( path = 'a''b;.csv' , x = -1.5 , y = TRUE , z = 10s ) AT room1 ;",
    "CREATE QUERY hot AS SELECT * , s.* , Temp AS t , Temp * 2 twice , transform( xs , x -> x + 1 )"
    " FROM Sensor1 s WHERE Temp > 50 AND NOT s.Room LIKE 'x%' INTO file( path = 'x' ) AT room1 ;",
    "CREATE QUERY q AS SELECT CASE WHEN Temp IS NULL THEN 1 ELSE -2 END , interval 1 day d"
    " , xs[ 0 ] FROM Sensor1 ; DROP QUERY IF EXISTS hot ; SHOW STREAMS ; DESCRIBE `a b` ;"
    " EXPLAIN hot ; EXPLAIN SELECT Temp FROM Sensor1",
]
WORDS = """
CREATE STREAM QUERY AS SELECT FROM WHERE INTO AT TIMESTAMP LATENESS DROP SHOW EXPLAIN DESCRIBE
GROUP BY MASTER IF EXISTS CASE WHEN THEN END NOT AND IS NULL DISTINCT CAST INTERVAL OVER
a Sensor1 Temp _ts f( count( struct( now() 1 1s 1.5e 0x1 5zz 'x' ' " ` `q` x' r' -- /* */ /*+
\\ -> => :: >>> ( ) [ ] < > , . ; * + - / = ? : { } {{ {% {# $ @ # & | ~ ^ ! % \0 é 😀
DOUBLE ARRAY< STRUCT< DECIMAL(
"""
PIECES = st.sampled_from([*WORDS.split(), "\n"])
SOUP = st.builds(
    lambda pieces, gap: gap.join(pieces), st.lists(PIECES, max_size=25), st.sampled_from(["", " "])
)
QUERY_SOUP = SOUP.map(lambda soup: f"CREATE QUERY q AS SELECT {soup} FROM Sensor1")
STREAM_SOUP = SOUP.map(lambda soup: f"CREATE STREAM s (a {soup}")


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A good script with a stretch of it replaced."""
    text = draw(st.sampled_from(SCRIPTS))
    start = draw(st.integers(0, len(text)))
    end = draw(st.integers(start, min(len(text), start + 10)))
    return text[:start] + draw(PIECES | st.just("") | st.text(max_size=3)) + text[end:]


def outcome(text: str) -> ScriptError | None:
    """The ScriptError that stops parsing and binding `text`, if one does."""
    script = Script(text)
    try:
        for statement in parse(script):
            if isinstance(statement, CreateStream):
                bind_stream(statement, script, default_site="x", base="")
            elif isinstance(statement, CreateQuery):
                bind(statement.text)
    except ScriptError as error:
        return error
    return None


@given(st.text() | SOUP | QUERY_SOUP | STREAM_SOUP | damaged())
@settings(max_examples=600, deadline=None)
def test_only_script_errors(text: str) -> None:
    is_complete(text)
    if error := outcome(text):
        assert error.message
        assert "\n" not in str(error)
        assert error.place.startswith("script:")
        assert error.excerpt.endswith("^")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000 + "a" + ")" * 5000,
        "f(" * 400 + "a" + ")" * 400,
        "NOT " * 3000 + "a",
        "a + " * 1000 + "a",
    ],
    ids=lambda text: text[:4],
)
def test_depth_is_no_crash(text: str) -> None:
    outcome(f"CREATE QUERY q AS SELECT {text} FROM Sensor1")


def test_deep_types_are_no_crash() -> None:
    with pytest.raises(ScriptError, match="nested too deeply"):
        parse(Script("CREATE STREAM s (a " + "ARRAY<" * 2000 + "INT" + ">" * 2000 + ") FROM f()"))


GAPS = st.lists(
    st.sampled_from(["\n", "\t", "  ", " /* c */", " /* ; ' */", " -- it's; \n", " /* /* x */ */"]),
    min_size=1, max_size=3,
).map(lambda parts: " " + "".join(parts) + " ")  # fmt: skip


@given(st.sampled_from(SCRIPTS), st.data())
@settings(max_examples=50, deadline=None)
def test_space_and_comments_mean_nothing(text: str, data: st.DataObject) -> None:
    tokens = tokenize(Script(text))[:-1]
    spaced, end = data.draw(GAPS), 0
    for token in tokens:
        if token.span.start > end:
            spaced += data.draw(GAPS)
        spaced += text[token.span.start : token.span.end]
        end = token.span.end
    spaced += data.draw(GAPS)
    assert parse(Script(spaced)) == parse(Script(text))
    assert is_complete(spaced) == text.endswith(";")
