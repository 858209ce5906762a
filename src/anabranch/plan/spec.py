"""The base of everything that is stored in the catalog or sent to a site."""

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Frozen, comparable, and the same after a trip through JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Column(Spec):
    """A column of a stream. `type` is a Spark SQL type, in Spark's own spelling once checked."""

    name: str
    type: str


class Call(Spec):
    """A source or sink with its options, as in `file(path = 'a.csv', speed = 'max')`."""

    name: str
    options: dict[str, str | int | float | bool] = {}
