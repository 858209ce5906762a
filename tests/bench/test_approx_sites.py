"""What the experiment with killed workers counts."""

from bench.approx.sites import Found, check, needless


def row(end: int, key: int, stream: str, x: float = 1.0) -> Found:
    guess = stream == "estimated"
    return Found(end, key, x, guess, x - 0.5 if guess else None, x + 0.5 if guess else None, stream)


ROWS = [
    row(1, 0, "q/1"),
    row(2, 0, "estimated", 1.2),
    row(3, 0, "q/1.2"),
    row(1, 1, "q/2"),
    row(2, 1, "q/2"),
    row(3, 1, "q/2"),
]
MEANS = {(end, key): 1.0 for end in (1, 2, 3, 4) for key in (0, 1)}


def test_all_is_well() -> None:
    found = check(ROWS, MEANS, 3)
    assert {name: found[name] for name in ("missing", "twice", "beyond", "differences")} == {
        "missing": 0,
        "twice": 0,
        "beyond": 0,
        "differences": 0,
    }
    assert (found["estimated"], found["needless"], found["error"], found["outside_bound"]) == (
        1,
        0,
        0,
        0,
    )


def test_each_fault_is_counted() -> None:
    assert check(ROWS[1:], MEANS, 3)["missing"] == 1
    assert check([*ROWS, ROWS[0]], MEANS, 3)["twice"] == 1
    assert check([*ROWS[:-1], row(3, 1, "q/2", 1.1)], MEANS, 3)["differences"] == 1
    wrong = check([ROWS[0], row(2, 0, "estimated", 1.7), *ROWS[2:]], MEANS, 3)
    assert (wrong["error"], wrong["worst_key_error"], wrong["outside_bound"]) == (1, 1, 1)


def test_an_estimate_between_results_of_one_generation_was_needless() -> None:
    assert needless([row(1, 0, "q/1"), row(2, 0, "estimated"), row(3, 0, "q/1")]) == 1
    assert needless([row(1, 0, "q/1"), row(2, 0, "estimated"), row(3, 0, "q/1.2")]) == 0
    assert needless([row(2, 0, "estimated"), row(3, 0, "q/1")]) == 0
