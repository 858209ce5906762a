"""What holds for any text."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.errors import ScriptError
from anabranch.language import (
    CreateAggregate,
    CreateQuery,
    CreateStream,
    CreateTable,
    Script,
    bind_aggregate,
    bind_stream,
    bind_table,
    is_complete,
    parse,
)
from anabranch.language.grammar.lexer import tokenize
from anabranch.plan.operators import Join
from tests.language.fakes import bind

SCRIPTS = [
    "CREATE STREAM Sensor1 ( Temp DOUBLE , a DECIMAL(10,2) , s STRUCT<a: INT> ) TIMESTAMP ts"
    " LATENESS 500 ms FROM file( path = 'a''b;.csv' , x = -1.5 , y = TRUE , z = 10s ) AT room1 ;",
    "CREATE QUERY hot AS SELECT * , s.* , Temp AS t , Temp * 2 twice , transform( xs , x -> x + 1 )"
    " FROM Sensor1 s WHERE Temp > 50 AND NOT s.Room LIKE 'x%' INTO file( path = 'x' ) AT room1 ;",
    "CREATE QUERY q AS SELECT CASE WHEN Temp IS NULL THEN 1 ELSE -2 END , interval 1 day d"
    " , xs[ 0 ] FROM Sensor1 ; DROP QUERY IF EXISTS hot ; SHOW STREAMS ; DESCRIBE `a b` ;"
    " EXPLAIN hot ; EXPLAIN SELECT Temp FROM Sensor1",
    "CREATE QUERY fire AS MASTER Sensor1 , b SELECT Sensor1.Temp , b.* , name FROM Sensor1[ 1 s ] ,"
    " Sensor2[ 10 ROWS ] AS b , Rooms WHERE Sensor1.Temp > 50 AND b.n = id AND b.n BETWEEN 1 AND 2"
    " INTO console( ) AT room1 ;",
    "CREATE QUERY means AS SELECT Room , AVG( Temp ) * 2 AS t , count( * ) , window_start FROM"
    " Sensor1[ 30m SLIDE 10 min ] WHERE Temp > 1 GROUP BY Room , upper( Room ) HAVING avg( Temp ) >"
    " 3 AND count( DISTINCT Temp ) < 9 ;",
    "SELECT middle( Temp ) FROM Sensor1[ 100 ROWS SLIDE 5 ] ; CREATE TABLE t ( a INT ) FROM f( ) ;"
    " CREATE AGGREGATE g ( DOUBLE , INT ) RETURNS DOUBLE FROM python( class = 'a:B' ) ;"
    " CREATE STREAM s ( a INT ) LATENESS 1s AT x ; SHOW AGGREGATES",
    "SELECT Temp FROM Sensor1 WHERE Temp > 1 STANDBY ON centre BATCH 10 RECOVERY 2 s OVERHEAD 1.5 %"
    " COMPRESS lz4 INTO f( ) ON room2 AT room3 ; SELECT Temp FROM Sensor1 STANDBY BATCH UNLIMITED",
]
WORDS = """
CREATE STREAM QUERY AS SELECT FROM WHERE INTO AT TIMESTAMP LATENESS DROP SHOW EXPLAIN DESCRIBE
HAVING MASTER TABLE AGGREGATE RETURNS ROWS SLIDE [1s] [5 avg( Sensor2 Rooms
STANDBY ON BATCH RECOVERY OVERHEAD COMPRESS UNLIMITED 30% 1.5% zstd
GROUP BY IF EXISTS CASE WHEN THEN END NOT AND IS NULL DISTINCT CAST INTERVAL OVER
a Sensor1 Temp _ts f( count( struct( now() 1 1s 1.5e 0x1 5zz 'x' ' " ` `q` x' r' -- /* */ /*+
\\ -> => :: >>> ( ) [ ] < > , . ; * + - / = ? : { } {{ {% {# $ @ # & | ~ ^ ! % \0 é 😀
DOUBLE ARRAY< STRUCT< DECIMAL(
"""
PIECES = st.sampled_from([*WORDS.split(), "\n"])
SOUP = st.builds(
    lambda pieces, gap: gap.join(pieces), st.lists(PIECES, max_size=25), st.sampled_from(["", " "])
)
QUERY_SOUP = SOUP.map(lambda soup: f"CREATE QUERY q AS SELECT {soup} FROM Sensor1")
AGGREGATE_SOUP = st.builds(
    lambda items, group: f"SELECT {items} FROM Sensor1[1s] GROUP BY {group}", SOUP, SOUP
)
JOIN_SOUP = st.builds(
    lambda items, rest: f"SELECT {items} FROM Sensor1[1s], Sensor2[1s], {rest}", SOUP, SOUP
)
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
            match statement:
                case CreateStream():
                    bind_stream(statement, script, default_site="x", base="")
                case CreateTable():
                    bind_table(statement, script, default_site="x", base="")
                case CreateAggregate():
                    bind_aggregate(statement, script, base="")
                case CreateQuery():
                    bind(statement.text)
    except ScriptError as error:
        return error
    return None


@given(st.text() | SOUP | QUERY_SOUP | STREAM_SOUP | AGGREGATE_SOUP | JOIN_SOUP | damaged())
@settings(max_examples=1000, deadline=None)
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
    min_size=1,
    max_size=3,
).map(lambda parts: " " + "".join(parts) + " ")


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


OPERANDS = st.sampled_from(
    ["a.Temp", "b.n", "xs[0]", "Rooms.id", "'AND'", "1", "(a.Temp + b.n)", "f(b.n, a.Temp)"]
)
CONDITIONS = st.one_of(
    st.builds(lambda x, y: f"{x} > {y}", OPERANDS, OPERANDS),
    st.builds(lambda x, y, z: f"{x} BETWEEN {y} AND {z}", OPERANDS, OPERANDS, OPERANDS),
    st.builds(lambda x, y: f"({x} = 1 AND {y} = 2)", OPERANDS, OPERANDS),
    st.builds(lambda x, y: f"CASE WHEN {x} = 1 AND {y} = 2 THEN 1 END = 1", OPERANDS, OPERANDS),
)


@given(st.lists(CONDITIONS, min_size=1, max_size=5), st.sampled_from([" AND ", "\nand "]))
@settings(max_examples=100, deadline=None)
def test_conjuncts_are_what_was_joined(parts: list[str], word: str) -> None:
    """Rendered as people write it, a condition is its text again."""
    query = bind(f"SELECT b.n FROM Sensor1[1s] a, Sensor2[1s] b, Rooms WHERE {word.join(parts)}")
    join = query.written.operators[0]
    assert isinstance(join, Join)
    assert [str(one.expr).replace("a.xs", "xs") for one in join.conditions] == parts
