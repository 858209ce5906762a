from __future__ import annotations

import pytest

from anabranch.errors import SinkError
from tests.connectors.reading import message
from tests.connectors.writing import numbered, sink

pytestmark = pytest.mark.spark


def test_append_goes_on(tmp_path, spark):
    for first in (1, 4):
        made = sink("spark", tmp_path, spark=lambda: spark, format="json", path="out")
        made.open()
        made.write(numbered(first, 3))
        made.close()
    found = spark.read.json(str(tmp_path / "out")).orderBy("_pos").collect()
    assert [row["a"] for row in found] == [1, 2, 3, 4, 5, 6]


def test_options_go_to_spark(tmp_path, spark):
    made = sink("spark", tmp_path, spark=lambda: spark, format="csv", path="out", sep=";")
    made.open()
    made.write(numbered(1, 1))
    (file,) = (tmp_path / "out").glob("part-*.csv")
    assert file.read_text() == "1;r1;1;1000\n"


def test_failure_is_one_line(tmp_path, spark):
    made = sink("spark", tmp_path, spark=lambda: spark, format="no_such_format", path="out")
    made.open()
    with pytest.raises(SinkError) as caught:
        made.write(numbered(1, 1))
    line = caught.value.line()
    assert line.startswith("spark(no_such_format): ")
    assert line.endswith("Check the format and its options.")
    assert "\n" not in line


def test_options(tmp_path, spark):
    assert message(lambda: sink("spark", tmp_path, format="csv", mode="replace")) == (
        "spark() has mode = 'replace'. Use 'append' or 'overwrite'."
    )
    assert message(lambda: sink("spark", tmp_path)).startswith("spark() needs the option 'format'")
