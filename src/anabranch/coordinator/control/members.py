"""Which sites are ours: they speak our protocol, belong to our catalog, and have not been started
again since.
"""

from __future__ import annotations

from anabranch.coordinator.base.catalog import Catalog
from anabranch.errors import ProtocolError, SiteError, Superseded
from anabranch.link.message import PROTOCOL
from anabranch.link.messages import JoinCluster
from anabranch.link.reports import SiteReport
from anabranch.version import VERSION


class Membership:
    """Each process that becomes a site is given a number, the incarnation of that site. A process
    that reports with an earlier number has been replaced, though it may have been paused and not
    know.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lives = catalog.lives()

    def join(self, request: JoinCluster) -> int:
        """The number of the new incarnation. Raises ProtocolError for another protocol."""
        _check_protocol(request.site, request.protocol, request.version)
        return self._catalog.next_number()

    def heard(self, report: SiteReport) -> None:
        """Raises an error if the reporting site is not ours. Otherwise its incarnation is the
        newest, and no number that it has seen is given out again.
        """
        site = report.site
        _check_protocol(site, report.protocol, report.version)
        self._check_origin(site, report)
        known, _ = self._lives.get(site, (0, ""))
        life = report.life
        if 0 < life < known:
            raise Superseded(
                f"site {site} has been started again since: this process of it is to end"
            )
        self._catalog.pass_over(max(life, report.seen))
        now = life, report.started
        if self._lives.get(site) != now:
            self._catalog.remember_life(site, *now)
            self._lives[site] = now

    def _check_origin(self, site: str, report: SiteReport) -> None:
        """Checks whose the site is. A site that runs nothing may become ours."""
        theirs, ours = report.origin, self._catalog.origin
        runs = report.tasks or report.sources
        if runs and theirs.id and theirs.id != ours.id:
            raise SiteError(
                f"site {site} runs what the system with its state in {theirs.folder} has"
                f" created; this coordinator has its state in {ours.folder}",
                remedy="Stop one of the two systems, or end the site and start it again for this.",
            )

    def started(self, site: str) -> str:
        """The time when its process was started, as it last said."""
        return self._lives.get(site, (0, ""))[1]


def _check_protocol(site: str, protocol: int, version: str) -> None:
    if protocol != PROTOCOL:
        raise ProtocolError(
            f"site {site} is anabranch {version} with protocol {protocol}, its coordinator is"
            f" anabranch {VERSION} with protocol {PROTOCOL}",
            remedy="Install the same version on both, and start the site again.",
        )
