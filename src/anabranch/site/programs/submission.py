"""A pocket as its class describes it, before anything is known of where it will run."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from anabranch.errors import ConfigError
from anabranch.plan.program import Program, Submission
from anabranch.pocket import Pocket, by_batch, by_row, by_time
from anabranch.site.programs.user_class import classes
from anabranch.units import duration_us

EXAMPLES = {
    "query": 'query = "SELECT Temp FROM Sensor1"',
    "output": 'output = "CREATE STREAM alarm (message STRING)"',
}


def submission(
    pocket: type[Pocket], code: str, path: str, *, pickled: bool = False, name: str | None = None
) -> Submission:
    """What is sent of a class. Raises ConfigError for what is missing or wrong in it."""
    place = f"{path}: class {pocket.__name__}"
    for attribute, example in EXAMPLES.items():
        if not isinstance(getattr(pocket, attribute, None), str):
            raise ConfigError(f"it has no {attribute}", place=place, remedy=f"As in {example}.")
    if by_row(pocket) == by_batch(pocket):
        number = "both" if by_row(pocket) else "neither"
        raise ConfigError(
            f"it defines {number} of process and row", place=place, remedy="Define one of them."
        )
    if pocket.on_error not in ("stop", "skip", "restart"):
        raise ConfigError(
            f"its on_error is {pocket.on_error!r}",
            place=place,
            remedy="It is 'stop', 'skip' or 'restart'.",
        )
    if pocket.standby is not None and not (pocket.deterministic and by_row(pocket)):
        raise ConfigError(
            "it asks for a standby, which would not give the same",
            place=place,
            remedy="Define row, and say deterministic = True if it is.",
        )
    promised = next((one for one in ("deterministic", "stateless") if getattr(pocket, one)), "")
    if by_time(pocket) and promised:
        raise ConfigError(
            f"it says {promised}, and what it gives in watermark() depends on when"
            " that was called last",
            place=place,
            remedy=f"Leave {promised} out, or watermark().",
        )
    if (pocket.snapshot is Pocket.snapshot) != (pocket.restore is Pocket.restore):
        there, missing = (
            ("restore", "snapshot")
            if pocket.snapshot is Pocket.snapshot
            else ("snapshot", "restore")
        )
        raise ConfigError(
            f"it defines {there}, but not {missing}",
            place=place,
            remedy="They belong together: define both.",
        )
    program = Program(
        code=code,
        path=path,
        class_name=pocket.__name__,
        pickled=pickled,
        on_error=pocket.on_error,
        deterministic=pocket.deterministic,
        stateless=pocket.stateless,
        every_us=_every_us(pocket, place),
        selectivity=pocket.selectivity,
    )
    return Submission(
        name=name or pocket.__name__,
        query=pocket.query,
        output=pocket.output,
        site=pocket.site,
        standby=pocket.standby,
        program=program,
    )


def _every_us(pocket: type[Pocket], place: str) -> int:
    found = 0
    with suppress(ConfigError, OverflowError):
        found = duration_us(str(pocket.every))
    if not 0 < found < 2**62:
        raise ConfigError(
            f"its every is {pocket.every!r}", place=place, remedy="It is a duration such as '1s'."
        )
    return found


def named(found: list[type[Pocket]], name: str, place: str) -> type[Pocket]:
    """The one of this name. Raises ConfigError if there is none."""
    for one in found:
        if one.__name__ == name:
            return one
    names = ", ".join(one.__name__ for one in found)
    remedy = f"There are: {names}." if names else "Write class Name(Pocket): …"
    raise ConfigError(f"there is no pocket {name}", place=place, remedy=remedy)


def described(name: str, class_: str, base: str) -> Submission:
    """The pocket `module:Class`, whose file lies in `base`, under a name, as it is submitted."""
    module, _, class_name = class_.partition(":")
    file = Path(base) / f"{module.replace('.', '/')}.py"
    try:
        code = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot read it: {why}", place=str(file), remedy="Write class = 'module:Class'."
        ) from None
    chosen = named(classes(code, str(file), Pocket), class_name, str(file))
    return submission(chosen, code, str(file), name=name)
