"""What looking at the system costs, and what its HTTP API lets nobody do."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from rich.markup import escape

from anabranch.cli.show.tables import err, out, plain_table, stdout_to_stderr
from anabranch.errors import SetupError, TaskError
from bench.commands.commands import Progress, measured


def bench_face(json_file: Path | None, sites: int, operators: int, seconds: float) -> None:
    from bench.face.viewer import measure

    result = measured(lambda progress: measure(progress, sites, operators, seconds), json_file)
    rows = [
        (one["view"], f"{one['server']:.1%}", f"{one['browser']:.1%}") for one in result["rows"]
    ]
    rows.append(("nobody looks", f"{result['nobody']:.1%}", ""))
    out.print(plain_table(("one viewer of", "server, of a core", "browser, of a core"), rows))
    out.print(
        f"{sites} sites, {operators} operators; the first view after"
        f" {result['first_view_s']:.2f} s."
    )


def experiment_fuzz_api(json_file: Path | None, requests: int, seed: int) -> None:
    """Raises if a request failed, or changed what it must not."""
    with stdout_to_stderr():  # what an operator's statements print is no result
        result = measured(lambda progress: _fuzzed(progress, requests, seed), json_file)
    sent = ", ".join(
        f"{count:,} by a {who}" if who != "operator" else f"{count:,} by an operator"
        for who, count in result["sent"].items()
    )
    out.print(
        plain_table(
            ("answered", "requests"),
            [(code, f"{count:,}") for code, count in result["answers"].items()],
        )
    )
    out.print(f"{sent}.")
    for problem in result["problems"]:
        err.print(escape(problem), soft_wrap=True)
    if result["problems"]:
        raise TaskError(f"{len(result['problems'])} requests went wrong")


def _fuzzed(progress: Progress, requests: int, seed: int) -> dict[str, Any]:
    try:
        import schemathesis  # noqa: F401
    except ImportError:
        raise SetupError(
            "the schema fuzzer is not installed", remedy="pip install schemathesis"
        ) from None
    from anabranch.cli.queries.run import Run
    from anabranch.config.cluster import ClusterConfig
    from anabranch.face.system import System
    from anabranch.scratch import scratch_folder
    from bench.face.fuzz import Fuzz

    folder = scratch_folder("fuzz-")
    try:
        with Run(ClusterConfig.of_sites(["room1", "room2"]), progress) as run:
            system = System(run.coordinator, folder)
            system.start()
            try:
                return Fuzz(system).run(requests, seed, progress)
            finally:
                system.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
