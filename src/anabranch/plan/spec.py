"""The base of everything that is stored in the catalog or sent to a site."""

from pydantic import BaseModel, ConfigDict, Field

from anabranch.errors import ConfigError
from anabranch.hidden import MASK, hide


class Spec(BaseModel):
    """A frozen value that can be compared and survives a trip through JSON unchanged."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")


class Column(Spec):
    """A column of a stream. `type` is a Spark SQL type, in Spark's own spelling once checked."""

    name: str
    type: str


Plain = str | int | float | bool


class Secret(Spec):
    """Stands in the place of an option's value, which is kept elsewhere under a name. Only the
    message to the site that needs it holds the value, and nothing that is kept or shown.

    A secret that was written into a statement has no name of a user's; `shown` is the text around
    it.
    """

    name: str = ""
    shown: str = ""
    value: str = Field(default="", repr=False)

    def __str__(self) -> str:
        return self.shown or f"secret('{self.name}')"

    __repr__ = __str__

    def opened(self) -> str:
        """The value, for the code that sends it outside. From then on it is masked wherever
        something is shown.
        """
        if not self.value:
            raise ConfigError(f"{self} is not known here")
        hide(self.value, MASK if self.shown else str(self))
        return self.value


class Call(Spec):
    """A source or sink with its options, as in `file(path = 'a.csv', speed = 'max')`."""

    name: str
    options: dict[str, Plain | Secret] = {}

    def opened(self) -> dict[str, Plain]:
        """The options with each secret replaced by its value."""
        return {name: opened(value) for name, value in self.options.items()}


def opened(value: Plain | Secret) -> Plain:
    return value.opened() if isinstance(value, Secret) else value
