"""What has changed between two pictures, so that only the changes cross the wire."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]


def delta(before: Json, after: Json) -> Json:
    """Lists of named things are cut down to new and changed entries and the names of those that are
    `gone`; all else to what has changed. `patched(before, delta(before, after)) == after`, but for
    the order of lists.
    """
    changed: Json = {}
    for key, value in after.items():
        old = before.get(key)
        if old is not None and _named(value) and _named(old):
            part = _list_delta(old, value)
            if part:
                changed[key] = part
        elif value != old:
            changed[key] = value
    return changed


def patched(before: Json, change: Json) -> Json:
    after = dict(before)
    for key, value in change.items():
        if isinstance(value, dict) and "changed" in value and "gone" in value:
            known = {_key(one): one for one in before.get(key) or ()}
            for gone in value["gone"]:
                known.pop(tuple(gone), None)
            known |= {_key(one): one for one in value["changed"]}
            after[key] = list(known.values())
        else:
            after[key] = value
    return after


def _named(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(one, dict) for one in value)


def _list_delta(before: list[Json], after: list[Json]) -> Json:
    old = {_key(one): one for one in before}
    changed = [one for one in after if old.get(_key(one)) != one]
    gone = [list(key) for key in old.keys() - {_key(one) for one in after}]
    return {"changed": changed, "gone": sorted(gone)} if changed or gone else {}


def _key(one: Json) -> tuple[str, ...]:
    """What identifies an entry: its ends for a link, its name for everything else."""
    if "sender" in one:
        return str(one["sender"]), str(one["receiver"])
    return (str(one["name"]),)
