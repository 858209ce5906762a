"""Fields of a configuration that people write with a unit, or loosely."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator

from anabranch.config.problems import problem
from anabranch.errors import ConfigError
from anabranch.units import bytes_per_second, duration_us


def _from_text(parse: Callable[[str], float], example: str) -> BeforeValidator:
    def read(value: Any) -> float:
        if not isinstance(value, str):
            raise problem("must be text in quotes with a unit", f'Write it like "{example}".')
        try:
            return parse(value)
        except ConfigError as error:
            raise problem(error.message, error.remedy) from None

    return BeforeValidator(read)


def _read_size(value: Any) -> Any:
    """A number of bytes, from a number or a text such as `64MB`."""
    if not isinstance(value, str):
        return value
    try:
        return round(bytes_per_second(f"{value}/s"))
    except ConfigError:
        raise problem(f"{value!r} is not a size", "Write it like 64MB or 512KiB.") from None


def _read_conf(value: Any) -> Any:
    """Spark's settings, all of them as text.

    `{ spark.driver.memory = "1g" }` without quotes is nested tables to TOML but plainly means the
    setting, so it is taken as that.
    """
    if not isinstance(value, dict):
        return value
    found = dict(_flat(value, ""))
    for key in found:
        if not key.startswith("spark."):
            raise problem(f"{key!r} is no setting of Spark", f"Write 'spark.{key}'?")
    return found


def _flat(table: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, _spark_text(value)


def _spark_text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


Microseconds = Annotated[int, _from_text(duration_us, "250ms")]
BytesPerSecond = Annotated[float, _from_text(bytes_per_second, "10MB/s")]
Bytes = Annotated[int, BeforeValidator(_read_size)]
SparkConf = Annotated[dict[str, str], BeforeValidator(_read_conf)]
