"""An approximate query in `anabranch status`."""

from __future__ import annotations

from anabranch.cli.show.tables import out, queries_table
from tests.face.test_promises import approximate_status


def test_it_is_one_row_with_its_workers_below() -> None:
    with out.capture() as capture:
        out.print(queries_table(approximate_status()))
    lines = [" ".join(line.split()) for line in capture.get().splitlines()]
    assert lines[1].startswith("means centre, centre2 running 10 10 20 0")
    assert lines[2:] == [
        "query means: 8 results estimated so far, within 0.5 with 95%",
        "means/1 at centre: estimates, learnt",
        "means/2 at centre2: restart point, learnt",
    ]
