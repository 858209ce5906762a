from __future__ import annotations

import pytest

from anabranch.connectors import SINKS, SOURCES, TABLES, make_sink, make_source
from anabranch.connectors.options import BOOLEAN, COUNT, DURATION, NUMBER, TEXT, Option, split, take
from tests.connectors.reading import context, message

DECLARED = (
    Option("path", TEXT, "where the file is", required=True),
    Option("mode", TEXT, "how", default="append", choices=("append", "overwrite", "ignore")),
    Option("rows", COUNT, "how many"),
    Option("tps", NUMBER, "how fast", default=1.0),
    Option("once", BOOLEAN, "whether it ends", default=False),
    Option("pause", DURATION, "how long", default=5),
)


def line(**given):
    return message(lambda: take("file", DECLARED, given))


def test_defaults_and_values():
    assert take("file", DECLARED, {"path": "a"}) == {
        "path": "a",
        "mode": "append",
        "rows": None,
        "tps": 1.0,
        "once": False,
        "pause": 5,
    }
    given = {"path": "a", "rows": "7", "tps": "0.5", "once": "TRUE", "pause": "10ms"}
    assert take("file", DECLARED, given) == {
        "path": "a",
        "mode": "append",
        "rows": 7,
        "tps": 0.5,
        "once": True,
        "pause": 10_000,
    }


def test_misspelt_names_get_the_nearest_one():
    assert line(pth="a") == "file() has no option 'pth'. Did you mean 'path'?"
    assert line(PATH="a") == "file() has no option 'PATH'. Did you mean 'path'?"
    assert line(zzz=1) == (
        "file() has no option 'zzz'. There is mode, once, path, pause, rows, tps."
    )


def test_required():
    assert line() == ("file() needs the option 'path'. Write file(path = …): where the file is.")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"path": 5}, "file() has path = 5. Give a text in quotes."),
        ({"path": " "}, "file() has path = ' '. Give a text in quotes."),
        (
            {"mode": "add"},
            "file() has mode = 'add'. Use 'append', 'overwrite' or 'ignore'.",
        ),
        ({"rows": 1.5}, "file() has rows = 1.5. Give a whole number above 0."),
        ({"rows": True}, "file() has rows = True. Give a whole number above 0."),
        ({"tps": 0}, "file() has tps = 0. Give a number above 0."),
        ({"tps": "nan"}, "file() has tps = 'nan'. Give a number above 0."),
        ({"tps": "inf"}, "file() has tps = 'inf'. Give a number above 0."),
        ({"once": "yes"}, "file() has once = 'yes'. Give true or false."),
        ({"pause": "10"}, "file() has pause = '10'. Give a duration such as '100ms'."),
        ({"pause": 10}, "file() has pause = 10. Give a duration such as '100ms'."),
    ],
)
def test_wrong_values(given, expected):
    assert line(**{"path": "a"} | given) == expected


def test_split_keeps_both_sides():
    assert split(DECLARED, {"path": "a", "else": 1}) == ({"path": "a"}, {"else": 1})


def test_unknown_source_and_sink(tmp_path):
    made = context(tmp_path, {}, {})
    assert message(lambda: make_source("flie", made)) == (
        "there is no source 'flie'. Did you mean 'file'?"
    )
    assert message(lambda: make_sink("mongo", made)) == (
        "there is no sink 'mongo'. There is console, csv, jsonl, kafka, parquet, postgres, spark."
    )


@pytest.mark.parametrize("registry", [SOURCES, SINKS, TABLES])
def test_everything_registered_can_be_listed(registry):
    for name in registry:
        options = registry.find(name).options
        assert options
        assert all(option.help and not option.help.endswith(".") for option in options)
