"""How a WHERE is split, and which conditions can never fail."""

from __future__ import annotations

import pytest

from anabranch.plan.operators import Condition, Selection
from tests.language.fakes import bind, define

[STREAM] = define(
    "CREATE STREAM s (a DOUBLE, b DOUBLE, f FLOAT, i INT, l BIGINT, t STRING, u STRING, p BOOLEAN,"
    " q BOOLEAN, d DATE, m TIMESTAMP, c DECIMAL(10, 2), x STRUCT<y: INT>) FROM f() AT x"
)


def conditions(where: str) -> list[Condition]:
    query = bind(f"SELECT a FROM s WHERE {where}", lookup=lambda _: STREAM)
    return [one.condition for one in query.written.operators if isinstance(one, Selection)]


@pytest.mark.parametrize(
    ("where", "parts"),
    [
        ("a > 1", ["s.a > 1"]),
        ("a > 1 AND b > 2 and p = q", ["s.a > 1", "s.b > 2", "s.p = s.q"]),
        ("a BETWEEN 1 AND 2 AND b > 2", ["s.a BETWEEN 1 AND 2", "s.b > 2"]),
        ("a NOT BETWEEN 1 AND b AND i BETWEEN 3 AND 4",
         ["s.a NOT BETWEEN 1 AND s.b", "s.i BETWEEN 3 AND 4"]),
        ("(a > 1 AND b > 2)", ["(s.a > 1 AND s.b > 2)"]),
        ("(a > 1 AND b > 2) AND i = 1", ["(s.a > 1 AND s.b > 2)", "s.i = 1"]),
        ("a > 1 OR b > 2 AND i = 1", ["s.a > 1 OR s.b > 2 AND s.i = 1"]),
        ("a > 1 AND b > 2 OR i = 1 AND l = 1", ["s.a > 1 AND s.b > 2 OR s.i = 1 AND s.l = 1"]),
        ("CASE WHEN p AND q THEN a ELSE b END > 1 AND i = 1",
         ["CASE WHEN s.p AND s.q THEN s.a ELSE s.b END > 1", "s.i = 1"]),
        ("NOT a > 1 AND b > 1", ["NOT s.a > 1", "s.b > 1"]),
        ("NOT (a > 1 AND b > 1)", ["NOT (s.a > 1 AND s.b > 1)"]),
        ("if(p AND q, a, b) > 1 AND t = 'x AND y'", ["if(s.p AND s.q, s.a, s.b) > 1",
                                                     "s.t = 'x AND y'"]),
        ("a > 1 -- AND\n AND b /* AND */ > 2", ["s.a > 1", "s.b > 2"]),
    ],
)  # fmt: skip
def test_parts(where: str, parts: list[str]) -> None:
    assert [str(one.expr) for one in conditions(where)] == parts


@pytest.mark.parametrize(
    "where",
    [
        "a > 1", "a > b", "a >= i", "i = l", "i <> -1", "l <= 1.5", "a = 1e3", "t = 'x'", "t < u",
        "p = TRUE", "NOT p = q", "d = d", "m > m", "c = c", "i <=> NULL", "a IS NULL",
        "t IS NOT NULL = TRUE", "p IS TRUE = TRUE", "i BETWEEN 1 AND l", "t BETWEEN 'a' AND 'b'",
        "i IN (1, 2)", "t NOT IN ('a', 'b') = TRUE", "t LIKE 'a%'", "t ILIKE '%a_'",
        "(a > 1 OR b < 2)", "a + b > 1", "a * 1.8 + 32 > 50", "a - i > 1", "f / 2 < 1", "-a < 1",
        "(a) > (1)", "_ts > 5",
    ],
)  # fmt: skip
def test_safe(where: str) -> None:
    assert [one.safe for one in conditions(where)] == [True]


@pytest.mark.parametrize(
    "where",
    [
        "i + 1 > 2", "i * l > 2", "-i < 1", "a / b > 1", "a / 0 > 1", "a / 0.0 > 1", "i / 2 > 1",
        "a % 2 > 1", "t = 1", "t > a", "i = '1'", "i IN (1, '2')", "m > '2024-01-01'", "d = m",
        "t BETWEEN 1 AND 2", "p = 1", "t LIKE u", r"t LIKE 'a\\'", "t LIKE 'x' ESCAPE '!' = TRUE",
        "t RLIKE '(' = TRUE", "CAST(t AS INT) > 1", "t::INT > 1", "x.y = 1", "length(t) > 1",
        "a + '1' > 1", "c > 1", "c = a", "CASE WHEN p THEN a END > 1", "if(p, a, b) > 1",
        "i > 12345678901234567", "a > 1 OR i / 0 > 1", "t IS NULL OR t = 5",
    ],
)  # fmt: skip
def test_not_safe(where: str) -> None:
    assert [one.safe for one in conditions(where)] == [False]
