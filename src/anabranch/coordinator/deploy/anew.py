"""Deploys everything from the beginning, because a user has asked for it.

This and DROP are the only ways in which the data of queries is deleted.

The request is kept first. If the coordinator dies meanwhile, it begins again after its restart:
nothing is left that could go on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from anabranch.coordinator.base.catalog import Catalog
from anabranch.coordinator.base.sites import Sites
from anabranch.coordinator.base.turns import PASSING, Turns
from anabranch.coordinator.deploy.deploy import Rollout, undeploy
from anabranch.coordinator.deploy.statements import created
from anabranch.coordinator.protection.protect import Protector
from anabranch.errors import AnabranchError
from anabranch.plan.catalog import AnyDef
from anabranch.plan.definitions import Definitions
from anabranch.runtime.base import Runtime

SETTING = "anew"


class Anew:
    def __init__(
        self,
        runtime: Runtime,
        sites: Sites,
        catalog: Catalog,
        protector: Protector,
        turns: Turns,
        say: Callable[[str], None],
    ) -> None:
        self._runtime = runtime
        self._sites = sites
        self._catalog = catalog
        self._protector = protector
        self._turns = turns
        self._say = say

    @property
    def is_begun(self) -> bool:
        """Whether it has begun and is not done."""
        return bool(self._catalog.setting(SETTING))

    async def run(
        self, renew: Callable[[AnyDef], AnyDef], clear: Callable[[Definitions], None]
    ) -> None:
        """`renew` makes each definition as if it were created now, and `clear` deletes the data
        that it had. Raises the final error of a site, after which it is still begun; errors that
        pass are tried again.
        """
        self._catalog.remember(SETTING, "yes")
        self._sites.accept_states()
        known = dict(self._catalog.definitions())
        async with self._turns.of(known):
            for definition in reversed(known.values()):
                await self._protector.forget(await undeploy(self._sites, definition, known))
            await self._runtime.blocking(clear, known)
            fresh = created(map(renew, known.values()), {}, self._catalog.next_number())
            self._catalog.replace(fresh)
            await self._deploy(fresh)
        self._catalog.remember(SETTING, "")

    async def _deploy(self, fresh: Sequence[AnyDef]) -> None:
        tries = 0
        while error := await self._try(fresh):
            if not error.passes:
                raise error
            tries += 1
            self._say(f"cannot begin yet: {error.line().rstrip('.')}; it is tried again")
            await self._runtime.sleep(PASSING.pause_s(tries, SETTING))

    async def _try(self, fresh: Sequence[AnyDef]) -> AnabranchError | None:
        known = {one.name: one for one in fresh}
        deployment = Rollout(self._sites, fresh, known, {}, self._protector)
        try:
            await deployment.run()
        except AnabranchError as error:
            await self._protector.forget(deployment.task_names)
            return error
        return None
