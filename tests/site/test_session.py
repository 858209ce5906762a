"""What users see of a session in Spark's own pages."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.mark.spark
def test_the_application_goes_by_the_name_of_its_site(spark: SparkSession) -> None:
    assert spark.sparkContext.appName == "anabranch tests"
