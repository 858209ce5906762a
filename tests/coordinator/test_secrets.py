"""Where secrets are kept, which statements they are part of, and what a site is sent of them."""

from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.coordinator.base.catalog import Intention
from anabranch.coordinator.base.secrets import FILE, Kept, Secrets
from anabranch.coordinator.scripts.replies import ScriptChanges
from anabranch.coordinator.scripts.scripts import ScriptCheck
from anabranch.disk.real import RealFolder
from anabranch.errors import ConfigError, ScriptError, StorageError
from anabranch.language.source import Script
from anabranch.link.message import Message, written
from anabranch.link.messages import Check, Checked, Prepare
from anabranch.plan.catalog import AnyDef, QueryDef, StreamDef
from anabranch.plan.definitions import tasks
from anabranch.plan.spec import secrets_in, with_secrets
from tests.coordinator.test_scripts import FakePeer, FakeSites, placing

SOURCE = "CREATE STREAM a (x DOUBLE) FROM f(path = 'in') AT room1;"
QUERY = "CREATE QUERY q AS SELECT x FROM a INTO g(path = secret('Pg'));"


class Seen(FakeSites):
    """Sites that keep what they are asked to look at."""

    def __init__(self) -> None:
        super().__init__("room1", "centre")
        self.asked: list[Check] = []

    def peer(self, name: str) -> Any:
        return SimpleNamespace(send=self._answered)

    def _answered(self, asked: Message[Any], timeout_s: float) -> Any:
        if isinstance(asked, Check):
            self.asked.append(asked)
            return Checked(())
        return FakePeer().send(asked, timeout_s)


def check(
    text: str,
    kept: dict[str, Kept] | None = None,
    known: dict[str, AnyDef] | None = None,
    base: str = "/base",
    sites: Any = None,
) -> ScriptChanges:
    around: Any = sites or Seen()
    return ScriptCheck(
        Script(text), known or {}, around, base, list, placing(around), secrets=kept or {}
    ).run()


def error(text: str, **more: Any) -> str:
    with pytest.raises(ScriptError) as raised:
        check(text, **more)
    return raised.value.line()


def test_only_its_owner_can_read_what_was_given(tmp_path: Path) -> None:
    secrets = Secrets(RealFolder(tmp_path))
    secrets.change({"pg": Kept(value="hunter2"), "env": Kept(env="PG")})
    file = tmp_path / FILE
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    again = Secrets(RealFolder(tmp_path))
    assert again.names() == ["env", "pg"]
    again.change({}, ["pg"])
    assert "hunter2" not in file.read_text()


def test_a_damaged_file_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text('{"pg": ')
    with pytest.raises(StorageError, match="damaged"):
        Secrets(RealFolder(tmp_path))


def test_where_it_is_found_is_looked_at_whenever_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "pg"
    secrets = Secrets(RealFolder(tmp_path / "state"))
    secrets.change({"f": Kept(file=str(file)), "e": Kept(env="PG_TEST")})
    (stream,) = check(
        "CREATE STREAM a (x INT) FROM f(path = secret(f)) AT room1;",
        secrets.known() | {"f": Kept(value="1")},
    ).add
    with pytest.raises(ConfigError, match=r"secret\('f'\) cannot be read: No such file"):
        secrets.filled(stream)
    for value in ("one-of-it\n", "two-of-it"):
        file.write_text(value)
        (secret,) = secrets_in(secrets.filled(stream))
        assert secret.opened() == value.strip()
    monkeypatch.delenv("PG_TEST", raising=False)
    with pytest.raises(ConfigError, match="variable PG_TEST of the coordinator is empty"):
        secrets.known()["e"].read("secret('e')")
    monkeypatch.setenv("PG_TEST", "three-of-it")
    assert secrets.known()["e"].read("") == "three-of-it"
    assert "three-of-it" not in (tmp_path / "state" / FILE).read_text()


def test_the_catalog_has_the_name_and_the_site_what_it_stands_for() -> None:
    sites = Seen()
    changes = check(f"CREATE SECRET pg AS 'hunter2'; {SOURCE} {QUERY}", sites=sites)
    assert [answer.text.split(" at ")[0] for answer in changes.answers] == [
        "secret pg created",
        "stream a created",
        "query q created",
    ]
    assert changes.keep == {"pg": Kept(value="hunter2")}
    (looked,) = [one.tasks[0] for one in sites.asked if one.tasks]
    assert looked.sink.opened() == {"path": "hunter2"}
    whole = Intention(add=tuple(changes.add)).model_dump_json()
    assert "hunter2" not in whole
    assert '"name":"Pg"' in whole
    secrets = Secrets()
    secrets.change(changes.keep)
    known = {one.name: one for one in changes.add}
    sent = secrets.filled(Prepare((), tuple(tasks(changes.add, known))))
    assert b"hunter2" in written(sent)
    assert "hunter2" not in repr(sent)


def test_what_is_written_out_is_kept_apart_too_and_nobody_asks_for_its_name() -> None:
    text = (
        f"{SOURCE} CREATE QUERY q AS SELECT x FROM a INTO g(path = 'h://u:hunter2@h');"
        "CREATE QUERY r AS SELECT x FROM a INTO g(path = 'h://u:hunter2@h'); SHOW SECRETS;"
    )
    changes = check(text)
    assert changes.answers[-1].rows == ()
    assert "hunter2" not in Intention(add=tuple(changes.add)).model_dump_json()
    (kept,) = changes.keep.values()  # once, though two use it
    assert kept.value == "h://u:hunter2@h"
    query = changes.add[-1]
    assert isinstance(query, QueryDef)
    assert "'h://u:***@h'" in query.text
    secrets = Secrets()
    secrets.change(changes.keep | {"mine": kept})
    secrets.keep_only(changes.add)
    assert len(secrets.known()) == 2
    secrets.keep_only([])
    assert list(secrets.known()) == ["mine"]


def test_what_is_wrong_with_secrets_is_said(tmp_path: Path) -> None:
    kept = {"pg": Kept(value="x")}
    used = {one.name: one for one in check(f"{SOURCE} {QUERY}", kept).add}
    assert "there is a secret pG already. Write DROP SECRET pG first" in error(
        "CREATE SECRET pG AS 'y'", kept=kept
    )
    assert "secret pg is used by q. Drop them first: DROP QUERY q;" in error(
        "DROP SECRET PG", kept=kept, known=used
    )
    assert "there is no secret pq. There are: pg." in error("DROP SECRET pq", kept=kept)
    assert "there is no secret secret('Pg')" in error(f"{SOURCE} {QUERY}")
    assert "Write CREATE SECRET Pg FROM env" in error(f"{SOURCE} {QUERY}")
    assert "variable NOT_THERE of the coordinator" in error("CREATE SECRET x FROM env('NOT_THERE')")
    assert f"{tmp_path}/none: " in error("CREATE SECRET x FROM file('none')", base=str(tmp_path))
    assert "does not begin with #" in error("CREATE SECRET `#x` AS 'y'")
    gone = check("DROP QUERY q; DROP SECRET pg; SHOW SECRETS;", kept, used)
    assert gone.forget == ["pg"]
    assert gone.answers[-1].rows == ()
    assert check("DROP SECRET IF EXISTS none").answers[0].text == "there is no secret none"


def test_a_file_that_everybody_can_read_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "pg").write_text("x")
    (tmp_path / "pg").chmod(0o644)
    (answer,) = check("CREATE SECRET x FROM file('pg')", base=str(tmp_path)).answers
    assert answer.text == f"secret x created. Every user of this machine can read {tmp_path}/pg"


def test_names_alone_are_shown() -> None:
    kept = {"pg": Kept(value="hunter2"), "k": Kept(env="K"), "#1": Kept(value="hidden")}
    (shown,) = check("SHOW SECRETS", kept).answers
    assert (shown.columns, shown.rows) == (("secret",), (("k",), ("pg",)))


def test_what_has_no_secrets_is_the_same_object() -> None:
    (stream,) = check(SOURCE).add
    assert isinstance(stream, StreamDef)
    message = Prepare((stream,), ())
    assert with_secrets(message, lambda one: one) is message
