"""All that we use of Spark beyond its declared interface, in one place.

Spark may change these with any version, so `pyspark` is bound to a minor version, and nothing else
imports them. The other such place is `spark.kept`, which works inside the JVM with what Spark's
planner and tasks use. It tries out whether that gives what it should; if not, all is jobs.

- Types between Spark and Arrow: the public way is to make a DataFrame and look at it, a job.
- `convert_exception`: a kept plan must raise what a job would raise.
- `cloudpickle`: Spark's own copy, so that classes of users reach its Python workers, too.
"""

from __future__ import annotations

from pyspark import cloudpickle
from pyspark.cloudpickle import CloudPickler
from pyspark.errors.exceptions.captured import convert_exception
from pyspark.sql.pandas.types import (
    from_arrow_schema,
    from_arrow_type,
    to_arrow_schema,
    to_arrow_type,
)

__all__ = [
    "CloudPickler",
    "cloudpickle",
    "convert_exception",
    "from_arrow_schema",
    "from_arrow_type",
    "to_arrow_schema",
    "to_arrow_type",
]
