"""CREATE SECRET, secret('…') in options, and passwords that are written out where they stand."""

from __future__ import annotations

import time

import pytest

from anabranch.errors import ScriptError
from anabranch.hidden import MASK, hide, passwords_in_script, shown, without
from anabranch.language.binding.binder import bind_call
from anabranch.language.grammar.parser import parse
from anabranch.language.grammar.statements import CreateQuery, CreateSecret, CreateStream
from anabranch.language.source import Script
from anabranch.plan.spec import Call, Secret
from anabranch.plan.tree import show_call


def one(text: str) -> CreateSecret:
    (statement,) = parse(Script(text))
    assert isinstance(statement, CreateSecret)
    return statement


@pytest.mark.parametrize(
    ("text", "origin", "source"),
    [
        ("CREATE SECRET pg FROM env('PG_PASSWORD')", "env", "PG_PASSWORD"),
        ("create secret pg from file('/run/secrets/pg');", "file", "/run/secrets/pg"),
        ("CREATE SECRET pg AS 'it''s'", "given", "it's"),
        ('CREATE SECRET pg AS "a b"', "given", "a b"),
        ("CREATE SECRET `p g` AS 'x'", "given", "x"),
    ],
)
def test_a_secret_is_given_or_found(text: str, origin: str, source: str) -> None:
    found = one(text)
    assert (found.origin, found.source) == (origin, source)
    assert found.name in ("pg", "p g")


def test_what_it_is_does_not_stand_in_its_picture() -> None:
    assert "hunter2" not in repr(one("CREATE SECRET pg AS 'hunter2'"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE SECRET pg 'hunter2'", "expected FROM or AS but found '***'"),
        ("CREATE SECRET pg", "expected FROM or AS but found the end"),
        ("CREATE SECRET pg AS ''", "a secret cannot be empty"),
        ("CREATE SECRET pg AS hunter2", "expected a string"),
        ("CREATE SECRET pg FROM vault('x')", "expected ENV or FILE"),
        ("CREATE SECRET pg AS 'hunter2' AT room1", "expected ';' but found 'AT'"),
        ("CREATE STREAM s (a INT) FROM f(password 'hunter2')", "expected '=' but found '***'"),
        ("CREATE STREAM s (a INT) FROM f(password = 'hunter2', x = )", "expected a string"),
        ("CREATE STREAM s (a INT) FROM f(password = 'hunter2", "string"),
    ],
)
def test_errors_do_not_show_it(text: str, message: str) -> None:
    with pytest.raises(ScriptError) as raised:
        parse(Script(text))
    said = str(raised.value.to_dict())
    assert message in raised.value.message
    assert "hunter2" not in said or "AS hunter2" in text  # where it has no quotes, nobody can know


def test_excerpts_underline_the_right_place_behind_what_is_left_out() -> None:
    with pytest.raises(ScriptError) as raised:
        parse(Script("CREATE STREAM s (a INT) FROM f(password = 'hunter2', path 'x')"))
    line, underline = raised.value.excerpt.splitlines()
    assert line == "CREATE STREAM s (a INT) FROM f(password = '***', path 'x')"
    assert line[underline.index("^") :].startswith("'x'")
    assert raised.value.place == "script:1:59"  # as in the text that was sent


def call(options: str) -> Call:
    (statement,) = parse(Script(f"CREATE STREAM s (a INT) FROM f({options})"))
    assert isinstance(statement, CreateStream)
    assert statement.source
    return bind_call(statement.source)


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ("password = secret('pg')", "password = secret('pg')"),
        ("password = secret(pg), path = 'x'", "password = secret('pg'), path = 'x'"),
        ("password = 'hunter2'", "password = ***"),
        ("password = 1234", "password = ***"),
        ("`sasl.password` = 'hunter2'", "sasl.password = ***"),
        ("`ssl.key.pem` = 'hunter2'", "ssl.key.pem = ***"),
        ("`fs.azure.account.key.x.y` = 'hunter2'", "fs.azure.account.key.x.y = ***"),
        ("accessKey = 'hunter2'", "accessKey = ***"),
        ("api_token = 'hunter2'", "api_token = ***"),
        ("url = 'postgresql://u:hunter2@h/db'", "url = 'postgresql://u:***@h/db'"),
        ("url = 'host=h password=hunter2 user=u'", "url = 'host=h password=*** user=u'"),
        ("url = 'jdbc:x://h/d?a=u&password=hunter2'", "url = 'jdbc:x://h/d?a=u&password=***'"),
        ("`sasl.jaas.config` = 'password=\"hunter2\"'", "sasl.jaas.config = ***"),
        ("key = 'id', max_tokens = 5, n = 'a:b@c'", "key = 'id', max_tokens = 5, n = 'a:b@c'"),
        ("password = ''", "password = ''"),
    ],
)
def test_options_are_shown_without_passwords(options: str, seen: str) -> None:
    found = call(options)
    assert show_call(found) == f"f({seen})"
    assert "hunter2" not in repr(found)
    assert "1234" not in repr(found)


def test_whoever_opens_it_gets_it() -> None:
    found = call("password = 'hunter2', url = 'postgresql://u:hunter2@h/db', n = 3")
    assert found.opened() == {"password": "hunter2", "url": "postgresql://u:hunter2@h/db", "n": 3}


def test_texts_of_definitions_are_shown_without_passwords() -> None:
    script = Script(
        "-- it's for the shop: password = 'hunter2'\n"
        "CREATE SECRET a AS 'hunter2';\n"
        "CREATE QUERY q AS SELECT a FROM s WHERE b = 'it''s' /* postgresql://u:hunter2@h */\n"
        "INTO postgres(url = \"postgresql://u:hunter2@h/db\", table = 't', password='hunter2')\n"
    )
    assert "hunter2" not in script.shown()
    assert script.shown().count(MASK) == 5
    for kept in ("WHERE b = 'it''s'", "table = 't'", "postgresql://u:***@h/db"):
        assert kept in script.shown()
    query = parse(script)[1]
    assert isinstance(query, CreateQuery)
    assert "hunter2" not in script.shown(query.span)


@pytest.mark.parametrize(
    "text",
    [
        "'" * 200_000,
        "password" * 50_000,
        "password " + " " * 200_000,
        "a" * 400_000,
        "/*" * 100_000,
        "://a:" * 50_000,
        "-" * 300_000,
        "secret " * 50_000,
        "password=" * 40_000,
        "'" + "\\'" * 100_000,
        "`" * 200_000,
        "secret `a " * 30_000,
    ],
)
def test_whatever_the_text_it_takes_no_time(text: str) -> None:
    began = time.process_time()
    without(text, passwords_in_script(text))
    assert time.process_time() - began < 5


def test_what_is_known_to_be_a_password_is_left_out_of_texts() -> None:
    hide("correct horse", "secret('pg')")
    hide("postgresql://u:battery-staple@h/db", MASK)
    hide("-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\n-----END KEY-----", "secret('key')")
    assert shown("FATAL: correct horse is wrong") == "FATAL: secret('pg') is wrong"
    assert "battery-staple" not in shown("the password 'battery-staple' of u")
    assert "MIIE" not in shown("at MIIEvQIBADANBgkqhkiG9w0BAQ")
    error = ScriptError("no correct horse", place="correct horse", remedy="correct horse")
    assert "correct" not in str(error.to_dict())


def test_names_are_short_of_nothing_that_a_secret_has() -> None:
    """A picture of a secret has its name and no value, whoever takes it."""
    whole = Secret(name="pg", value="hunter2")
    for picture in (str(whole), repr(whole), f"{whole}", f"{[whole]}"):
        assert picture.strip("[]") == "secret('pg')"
