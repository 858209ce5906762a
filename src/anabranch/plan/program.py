"""A user's program in the form in which it is sent to the site that runs it."""

from typing import Literal

from anabranch.plan.spec import Spec


class Program(Spec):
    """The class `class_name` in the text `code` of the file `path`; or, `pickled`, the class itself
    in base64, which was defined in `path`."""

    code: str
    path: str
    class_name: str
    pickled: bool = False
    on_error: Literal["stop", "skip", "restart"] = "stop"
    deterministic: bool = False
    stateless: bool = False
    every_us: int = 1_000_000
    """From one moment at which it is told the time to the next."""
    selectivity: float = 1.0

    @property
    def asks_the_world(self) -> bool:
        """Whether its results may differ for the same input, because it asks the world outside."""
        return self.stateless and not self.deterministic

    @property
    def remembers(self) -> bool:
        """Whether its results may depend on all earlier tuples."""
        return not (self.deterministic or self.stateless)


class Submission(Spec):
    """A pocket as its class describes it, with its code."""

    name: str
    query: str
    output: str
    site: str | None = None
    standby: str | None = None
    program: Program
