import pytest

from anabranch.errors import ScriptError
from anabranch.language import Script, is_complete
from anabranch.language.grammar.lexer import TokenKind, tokenize


def kinds(text: str) -> list[tuple[TokenKind, str]]:
    return [(token.kind, token.text) for token in tokenize(Script(text))[:-1]]


def test_words_stay_words_whatever_sqlglot_takes_them_for() -> None:
    words = ["Temp", "SHOW", "Explain", "TIMESTAMP", "select", "é"]
    assert kinds(" ".join(words)) == [(TokenKind.WORD, word) for word in words]


def test_a_duration_is_one_token() -> None:
    durations = ["1s", "500ms", "1.5s", "3d", "10min", "40µs"]
    assert kinds(" ".join(durations)) == [(TokenKind.NUMBER, text) for text in durations]


def test_quoted_names_and_strings_hold_their_content() -> None:
    assert kinds("`a b` 'c' \"d\" r'\\e'") == [
        (TokenKind.QUOTED, "a b"),
        (TokenKind.STRING, "c"),
        (TokenKind.STRING, "d"),
        (TokenKind.STRING, "\\e"),
    ]


def test_spans_point_into_the_text() -> None:
    text = "温 /* c */ `x` -- d\n <= 'é'"
    found = [text[token.span.start : token.span.end] for token in tokenize(Script(text))]
    assert found == ["温", "`x`", "<=", "'é'", ""]


def test_comments_and_hints_vanish() -> None:
    assert kinds("SELECT /*+ hint */ a /* /* b */ ; */ -- c\n") == [
        (TokenKind.WORD, "SELECT"),
        (TokenKind.WORD, "a"),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a 'b", "script:1:3: this string is never closed. End it with '.\na 'b\n  ^^"),
        ('a\n  "b', """script:2:3: this string is never closed. End it with ".\n  "b\n  ^^"""),
        (
            "a 'b\\' c",
            "script:1:3: this string is never closed. End it with '.\na 'b\\' c\n  ^^^^^^",
        ),
        ("`b c", "script:1:1: this quoted name is never closed. End it with `.\n`b c\n^^^^"),
        (
            "a /* b */ /* c",
            "script:1:11: this comment is never closed. End it with */."
            "\na /* b */ /* c\n          ^^^^",
        ),
        (
            "a x'1G' b",
            "script:1:3: a hexadecimal string holds only 0-9 and A-F\na x'1G' b\n  ^^^^^",
        ),
    ],
)
def test_text_that_cannot_be_split(text: str, expected: str) -> None:
    with pytest.raises(ScriptError) as caught:
        tokenize(Script(text))
    assert f"{caught.value}\n{caught.value.excerpt}" == expected


@pytest.mark.parametrize(
    "text",
    [
        "SHOW SITES;",
        ";",
        "a;  \n",
        "a; -- done",
        "a; /* x /* y */ */",
        "'a'';';",
        "r'\\';",
        "'\\'';",
    ],
)
def test_complete(text: str) -> None:
    assert is_complete(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "SHOW SITES",
        "a; b",
        "'a;",
        "'a;'",
        "a -- ;",
        "a /* ;",
        "`a;",
        "'\\';",
        "a; 'b'",
        '";',
    ],
)
def test_incomplete(text: str) -> None:
    assert not is_complete(text)
