"""`anabranch submit`: a pocket from its file to a running system."""

from __future__ import annotations

from pathlib import Path

from anabranch.cli.queries.scripts import read_text
from anabranch.cli.show.tables import out
from anabranch.coordinator.requests import Submit
from anabranch.coordinator.service.state import find_coordinator
from anabranch.errors import ConfigError
from anabranch.pocket import Pocket
from anabranch.site.programs.submission import classes, named, submission

SUBMIT_S = 300.0


def submit(
    file: Path, class_name: str | None, name: str | None, state: Path, *, wait: bool = True
) -> None:
    """Runs the user's file here to see what is in it; the site runs it again. `wait` says how long
    to wait for sites that are being started.
    """
    coordinator = find_coordinator(state)
    try:
        code, path = read_text(file, "pocket"), str(file.resolve())
        chosen = choose(classes(code, path, Pocket), class_name, str(file))
        submitted = submission(chosen, code, path, name=name)
        base = str(file.resolve().parent)
        pocket = coordinator.send(Submit(submitted, base, wait=wait), SUBMIT_S)
    finally:
        coordinator.close()
    out.print(f"pocket {pocket.name} started at {pocket.site}", markup=False)
    for role, kind, stream in (
        ("reads", "query", pocket.input),
        ("fills", "stream", pocket.output),
    ):
        new = f"{kind} {stream}, which came with it" if stream in pocket.made else stream
        out.print(f"  {role} {new}", markup=False)


def choose(pockets: list[type[Pocket]], name: str | None, place: str) -> type[Pocket]:
    names = [one.__name__ for one in pockets]
    if not pockets:
        raise ConfigError(
            "this file defines no pocket", place=place, remedy="Write class Name(Pocket): …"
        )
    if name is not None:
        return named(pockets, name, place)
    if len(pockets) > 1:
        raise ConfigError(
            f"there are several pockets: {', '.join(names)}",
            place=place,
            remedy=f"Choose one, as in --class {names[0]}.",
        )
    return pockets[0]
