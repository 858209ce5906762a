"""The source that a site runs for a stream of a stage, by its role."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from anabranch.connectors.source import Source
from anabranch.plan.stage import Stage
from anabranch.spark.session import arrow_schema
from anabranch.stage.late import LateTuples
from anabranch.stage.merged import MergedRun
from anabranch.stage.partials import PartialsSql
from anabranch.stage.results import StagePart, StageResults, grid_of
from anabranch.stage.run import StageRun, cores, sample_schema
from anabranch.stage.store import partials_of
from anabranch.stage.work import input_of


def stage_source(
    spark: SparkSession,
    stage: Stage,
    columns: pa.Schema,
    folder: Path | None,
    stopped: threading.Event,
) -> Source:
    """`columns` are those of the stream; `folder` is where the state's checkpoints are."""
    if stage.role == "late":
        return LateTuples(stage, arrow_schema(stage.input.columns), columns, stopped)
    if stage.role == "merge":
        return StageResults(stage, columns, _merged(spark, stage, stopped))
    run = StageRun(spark, stage, folder, slots=cores(spark), stopped=stopped)
    if stage.role == "part":
        return StagePart(run)
    all = _merged(spark, stage, stopped) if stage.parts > 1 else None
    return StageResults(stage, columns, run, all)


def _merged(spark: SparkSession, stage: Stage, stopped: threading.Event) -> MergedRun:
    sample = sample_schema(spark, stage)
    partials = partials_of(PartialsSql(stage), sample.empty_table()).schema
    finite = input_of(stage, arrow_schema(stage.input.columns)).finite
    return MergedRun(stage, partials, grid_of(stage), finite=finite, stopped=stopped)
