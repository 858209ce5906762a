"""`python -m bench shop`."""

from __future__ import annotations

from pathlib import Path

from anabranch.cli.show.tables import out, plain_table
from bench.commands.commands import measured_long


def experiment_shop(json_file: Path | None, seconds: float, per_s: float) -> None:
    from bench.shop import experiment

    result = measured_long(
        lambda progress, keep: experiment.run(progress, keep, seconds, per_s), json_file
    )
    rows = [
        (
            row["what"],
            *(
                f"{row[name]:.1f} s"
                for name in ("first_s", "each_sale_s", "windows_s", "caught_up_s")
            ),
        )
        for row in result["rows"]
    ]
    names = ("what", "first new result", "of each sale", "of each query", "caught up")
    out.print(plain_table(names, rows))
    for row in result["rows"]:
        out.print(f"on the terminal of up, {row['what']}:")
        out.print("\n".join(f"  {line}" for line in row["said"]), markup=False)
    tables = [(name, *found.values()) for name, found in result["tables"].items()]
    out.print(plain_table(("table", "rows", "missing", "twice", "wrong"), tables))
    experiment.check(result)
