"""What must hold between the parts of a cluster.

A rule yields a ConfigError for each breach, placed within the file (`site.room1.listen`). Rules
are tried in order: a later one may take for granted what an earlier one asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from anabranch.config.address import HostPort
from anabranch.config.model import ClusterConfig, LinkConfig, Security, SiteConfig, check_site_name
from anabranch.config.problems import did_you_mean
from anabranch.errors import ConfigError

Rule = Callable[[ClusterConfig], Iterator[ConfigError]]


def breaches(cluster: ClusterConfig) -> Iterator[ConfigError]:
    for rule in RULES:
        yield from rule(cluster)


def some_site(cluster: ClusterConfig) -> Iterator[ConfigError]:
    if not cluster.sites:
        yield ConfigError("there is no site", remedy="Add one, e.g. a line [site.room1].")


def site_names(cluster: ClusterConfig) -> Iterator[ConfigError]:
    for name in cluster.sites:
        try:
            check_site_name(name, place="site")
        except ConfigError as error:
            yield error


def addresses_can_be_connected_to(cluster: ClusterConfig) -> Iterator[ConfigError]:
    for site in cluster.sites.values():
        if site.reached_at.every_interface:
            yield ConfigError(
                f"nobody can connect to {site.reached_at}",
                place=f"site.{site.name}.address",
                remedy="Set address to what other sites connect to.",
            )


def ports_are_known_outside(cluster: ClusterConfig) -> Iterator[ConfigError]:
    """People and proxies that lead others to a site must know its port beforehand."""
    for site in cluster.sites.values():
        known = {"listen": site.listen} | ({"address": site.address} if site.address else {})
        for key, address in known.items() if site.address or site.remote else ():
            if address.port == 0:
                yield ConfigError(
                    f"port 0 is any free port, but others must know where to reach {site.name}",
                    place=f"site.{site.name}.{key}",
                    remedy=f"Set {key} with a port from 1 to 65535.",
                )


def listeners_do_not_clash(cluster: ClusterConfig) -> Iterator[ConfigError]:
    """No two listeners on this machine share an address; a remote site listens on its own
    machine.
    """
    taken: list[tuple[str, HostPort]] = [("the coordinator", cluster.listen)]
    for site in cluster.sites.values():
        if not site.remote:
            for key, wanted in (("listen", site.listen), ("http", site.http)):
                if wanted is not None:
                    yield from _clash(site, key, wanted, taken)
                    taken.append((f"site {site.name!r}", wanted))


def addresses_do_not_clash(cluster: ClusterConfig) -> Iterator[ConfigError]:
    taken: list[tuple[str, HostPort]] = []
    for site in cluster.sites.values():
        key = "address" if site.address else "listen"
        yield from _clash(site, key, site.reached_at, taken)
        taken.append((f"site {site.name!r}", site.reached_at))


def _clash(
    site: SiteConfig, key: str, wanted: HostPort, taken: list[tuple[str, HostPort]]
) -> Iterator[ConfigError]:
    for owner, address in taken:
        if wanted.clashes_with(address):
            yield ConfigError(
                f"{wanted} is already taken by {owner} ({address})",
                place=f"site.{site.name}.{key}",
                remedy="Choose another port.",
            )


def tls_is_complete(cluster: ClusterConfig) -> Iterator[ConfigError]:
    security = cluster.security
    if (security.tls_cert is None) != (security.tls_key is None):
        missing = "tls_cert" if security.tls_cert is None else "tls_key"
        yield ConfigError(
            f"{missing} is missing", place="security", remedy="TLS needs tls_cert and tls_key."
        )


def outside_is_guarded(cluster: ClusterConfig) -> Iterator[ConfigError]:
    for place, address in _addresses(cluster):
        yield from unguarded(address, cluster.security, place)


def unguarded(address: HostPort, security: Security, place: str) -> Iterator[ConfigError]:
    """Whatever other machines can reach needs a token, and TLS unless the file allows it to be
    missing.
    """
    if address.loopback:
        return
    if security.token_file is None:
        yield ConfigError(
            f"{address} can be reached from other machines, but there is no token",
            place=place,
            remedy="Set token_file in [security].",
        )
    elif not (security.tls or security.plaintext):
        yield ConfigError(
            f"{address} can be reached from other machines, but there is no TLS",
            place=place,
            remedy="Set tls_cert and tls_key in [security], "
            "or plaintext = true if the network is trusted.",
        )


def spark_is_guarded(cluster: ClusterConfig) -> Iterator[ConfigError]:
    """Executors that are elsewhere reach ports of the site's Spark, and so can anybody there, who
    may run any code unless Spark authenticates its peers and encrypts its connections.
    """
    for site in cluster.sites.values():
        elsewhere = site.master.startswith(_ELSEWHERE)
        if cluster.security.plaintext or not elsewhere:
            continue
        if missing := [key for key, any_of in _GUARDS.items() if not _one_set(site.conf, any_of)]:
            settings = " and ".join(f'"{key}" = true' for key in missing)
            yield ConfigError(
                f"with master {site.master} the ports of Spark can be reached from other machines,"
                " but they are open to all",
                place=f"site.{site.name}.master",
                remedy=f"Set {settings} in conf, or plaintext = true in [security] if the network"
                " is trusted.",
            )


_ELSEWHERE = ("spark:", "k8s:", "yarn", "mesos:")
"""How masters begin whose executors are on other machines. Spark refuses what it does not know."""

_GUARDS = {
    "spark.authenticate": ("spark.authenticate",),
    "spark.network.crypto.enabled": ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled"),
}


def _one_set(conf: Mapping[str, str], keys: Iterable[str]) -> bool:
    return any(conf.get(key, "").lower() == "true" for key in keys)


def spark_shows_itself_here(cluster: ClusterConfig) -> Iterator[ConfigError]:
    """Spark's own pages must be on loopback, because they authenticate nobody."""
    for site in cluster.sites.values():
        guarded = site.master.startswith("local") or site.conf.get("spark.acls.enable") == "true"
        if _one_set(site.conf, ["spark.ui.enabled"]) and not (
            guarded or cluster.security.plaintext
        ):
            yield ConfigError(
                f"with master {site.master} Spark's pages can be reached from other machines,"
                " and ask nobody for a token",
                place=f"site.{site.name}.conf",
                remedy='Leave "spark.ui.enabled" out, or set "spark.acls.enable" = true and'
                " a filter that knows users.",
            )


def _addresses(cluster: ClusterConfig) -> Iterator[tuple[str, HostPort]]:
    yield "cluster.listen", cluster.listen
    for site in cluster.sites.values():
        places = {"listen": site.listen, "address": site.address, "http": site.http}
        for key, address in places.items():
            if address is not None:
                yield f"site.{site.name}.{key}", address


def one_spark_in_a_process(cluster: ClusterConfig) -> Iterator[ConfigError]:
    together = [site for site in cluster.sites.values() if site.shares_process]
    for site in together[1:]:
        if differing := _differing(together[0], site):
            yield ConfigError(
                f"shares its process and Spark with site {together[0].name!r} "
                f"but differs in {', '.join(differing)}",
                place=f"site.{site.name}",
                remedy='Make them equal or set isolation = "process".',
            )


def _differing(a: SiteConfig, b: SiteConfig) -> list[str]:
    settings = sorted(dict(a.conf.items() ^ b.conf.items()))
    # They share their queue, too.
    same = [key for key in ("master", "schedule") if getattr(a, key) != getattr(b, key)]
    return [*same, *(f"conf {key!r}" for key in settings)]


def links_join_sites(cluster: ClusterConfig) -> Iterator[ConfigError]:
    for link in cluster.links:
        for name in (link.sender, link.receiver):
            if name not in cluster.sites:
                yield ConfigError(
                    f"unknown site {name!r}",
                    place=_link_place(link),
                    remedy=did_you_mean(name, cluster.sites, title="Known sites"),
                )
        if link.sender == link.receiver:
            yield ConfigError("a link joins two different sites", place=_link_place(link))


def links_are_given_once(cluster: ClusterConfig) -> Iterator[ConfigError]:
    seen = set()
    for link in cluster.links:
        if (ends := (link.sender, link.receiver)) in seen:
            yield ConfigError(
                "this link is given twice",
                place=_link_place(link),
                remedy="Remove one; both = true also gives the way back.",
            )
        seen.add(ends)


def _link_place(link: LinkConfig) -> str:
    return f"link from {link.sender} to {link.receiver}"


RULES: tuple[Rule, ...] = (
    some_site,
    site_names,
    addresses_can_be_connected_to,
    ports_are_known_outside,
    listeners_do_not_clash,
    addresses_do_not_clash,
    tls_is_complete,
    outside_is_guarded,
    spark_is_guarded,
    spark_shows_itself_here,
    one_spark_in_a_process,
    links_join_sites,
    links_are_given_once,
)
