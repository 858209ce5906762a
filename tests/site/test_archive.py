"""Spark's classes come from the archive that `anabranch prepare` wrote, where it has been run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from anabranch.spark.session import archive_path, quoted, using, writing


def test_without_an_archive_java_is_told_nothing(tmp_path: Path) -> None:
    assert using(tmp_path / "none.jsa") == ""


def test_java_is_told_of_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "spark.jsa"
    archive.touch()
    assert using(archive) == f'-XX:SharedArchiveFile="{archive}"'
    assert writing(archive) == f'-XX:ArchiveClassesAtExit="{archive}"'


def test_what_is_special_in_a_path_is_escaped() -> None:
    assert quoted(Path('/a b/"c"\\d')) == '"/a b/\\"c\\"\\\\d"'


def test_the_archive_goes_with_the_environment() -> None:
    assert archive_path().is_relative_to(sys.prefix)


@pytest.mark.spark
@pytest.mark.skipif(not archive_path().is_file(), reason="`anabranch prepare` has not been run")
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere there is no /proc")
def test_spark_maps_the_archive(spark: SparkSession) -> None:
    jvm = SparkContext._gateway.proc  # type: ignore[union-attr]
    assert str(archive_path()) in Path(f"/proc/{jvm.pid}/maps").read_text()


@pytest.mark.spark
def test_a_path_with_a_space_reaches_java_whole(spark: SparkSession) -> None:
    java = spark.sparkContext._jvm.java.lang.System  # type: ignore[union-attr]
    assert Path(java.getProperty("java.io.tmpdir")).name.startswith("a site's scratch")
