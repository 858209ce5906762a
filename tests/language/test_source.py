from anabranch.language.source import Script, Span


def excerpt(text: str, marked: str) -> str:
    start = text.index(marked)
    return Script(text).excerpt(Span(start, start + len(marked)))


def test_lines_and_columns_count_from_one() -> None:
    script = Script("a\nbc\n\nd")
    assert [script.line_and_column(offset) for offset in (0, 2, 3, 6)] == [
        (1, 1),
        (2, 1),
        (2, 2),
        (4, 1),
    ]


def test_an_error_says_place_message_remedy_and_shows_the_line() -> None:
    error = Script("one\ntwo three", "fire.sql").error(Span(8, 13), "no three", "Use four.")
    assert str(error) == "fire.sql:2:5: no three. Use four."
    assert error.excerpt == "two three\n    ^^^^^"


def test_the_underline_of_several_lines_ends_with_the_first() -> None:
    assert excerpt("x 'a\nb' y", "'a\nb'") == "x 'a\n  ^^"


def test_an_empty_span_gets_one_mark() -> None:
    assert Script("DROP").excerpt(Span(4, 4)) == "DROP\n    ^"
    assert Script("").excerpt(Span(0, 0)) == "\n^"


def test_the_underline_stays_below_after_tabs_and_wide_characters() -> None:
    assert excerpt("\tx y", "y") == "\tx y\n\t  ^"
    assert excerpt("'温度' y", "y") == "'温度' y\n       ^"
    assert excerpt("温度 y", "温度") == "温度 y\n^^^^"


def test_windows_line_ends_and_control_characters_do_not_reach_the_terminal() -> None:
    assert excerpt("a\x1b b\r\nc", "b") == "a· b\n   ^"


def test_of_a_very_long_line_a_part_is_shown() -> None:
    text = "x" * 100_000 + " here " + "y" * 100_000
    shown, underline = excerpt(text, "here").split("\n")
    assert len(shown) < 500
    assert shown[underline.index("^") :].startswith("here")
    assert shown.startswith("…x")
    assert shown.endswith("y…")
