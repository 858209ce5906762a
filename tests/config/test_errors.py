"""Every complaint about a cluster file, word for word."""

from __future__ import annotations

import pytest

from anabranch.config.cluster import load_cluster, parse_cluster
from anabranch.errors import ConfigError

SHAPE = [
    ("x", "line 1, column 2: not TOML: Expected '=' after a key in a key/value pair"),
    (
        "[site.a]\nslots = 1\nlisten = 127.0.0.1",
        "line 3, column 15: not TOML: Expected newline or end of document after a statement",
    ),
    ('[site.a]\nmaster = """', "line 2, column 13: not TOML: Unterminated string"),
    ("clustr = 1", "unknown key 'clustr'. Did you mean 'cluster'?"),
    (
        "shade = 1",
        "unknown key 'shade'. Known keys: cluster, security, placement, defaults, site, link.",
    ),
    (
        '[site.room1]\nisolaton = "thread"',
        "site.room1: unknown key 'isolaton'. Did you mean 'isolation'?",
    ),
    ("[defaults]\nslot = 1", "defaults: unknown key 'slot'. Did you mean 'slots'?"),
    (
        '[site.a]\nname = "a"',
        "site.a: unknown key 'name'. Known keys: listen, address, http, isolation, master, conf,"
        " slots, schedule, batch, disk, disk_full, state, plans.",
    ),
    (
        "[cluster.queue]\nmax_byte = 1",
        "cluster.queue: unknown key 'max_byte'. Did you mean 'max_bytes'?",
    ),
    ("[[link]]\nform = 1", "link 1: unknown key 'form'. Did you mean 'from'?"),
    ("site = 3", "site: must be a table"),
    ("[site]\na = 3", "site.a: must be a table"),
    ("[site.a]\nconf = 3", "site.a.conf: must be a table"),
    ("[site.a]\nconf = { spark.x = [1] }", "site.a.conf.spark.x: must be text in quotes"),
    (
        "[site.a]\nconf = { driver.memory = '4g' }",
        "site.a.conf: 'driver.memory' is no setting of Spark. Write 'spark.driver.memory'?",
    ),
    (
        "[cluster]\nheartbeat = '1s'",
        "cluster: unknown key 'heartbeat'. Did you mean 'heartbeat_interval'?",
    ),
    ("[link]", "link: must be tables in double brackets, as in [[link]]"),
    ('[[link]]\nfrom = "a"', "link 1.to: is missing"),
    ("[site.a]\nmaster = 2", "site.a.master: must be text in quotes"),
    ('[site.a]\nmaster = ""', "site.a.master: must not be empty"),
    ('[site.a]\nslots = "1"', "site.a.slots: must be a whole number"),
    ("[site.a]\nslots = true", "site.a.slots: must be a whole number"),
    ("[site.a]\nslots = 0", "site.a.slots: must be at least 1"),
    ('[security]\nplaintext = "no"', "security.plaintext: must be true or false"),
    ("[security]\ntoken_file = 1", "security.token_file: must be text in quotes"),
]

VALUES = [
    (
        '[site.room1]\nisolation = "proces"',
        "site.room1.isolation: unknown isolation 'proces'. Did you mean 'process'?",
    ),
    (
        '[site.room1]\nisolation = "jail"',
        "site.room1.isolation: unknown isolation 'jail'. Use one of: thread, process.",
    ),
    (
        "[site.room1]\nisolation = 1",
        "site.room1.isolation: unknown isolation 1. Use one of: thread, process.",
    ),
    (
        '[site.a]\nlisten = "7101"',
        "site.a.listen: '7101' is not an address. Write it like \"127.0.0.1:7101\".",
    ),
    (
        "[cluster]\nlisten = 7101",
        'cluster.listen: 7101 is not an address. Write it like "127.0.0.1:7101".',
    ),
    (
        '[site.a]\naddress = "127.0.0.1:65536"',
        "site.a.address: port 65536 does not exist. Ports go from 0 to 65535.",
    ),
    (
        "[cluster]\nack_interval = 250",
        'cluster.ack_interval: must be text in quotes with a unit. Write it like "250ms".',
    ),
    (
        '[cluster]\nheartbeat_interval = "250"',
        "cluster.heartbeat_interval: '250' has no known unit of time. "
        "Use one of us, µs, ms, s, m, min, h, d, as in 250ms.",
    ),
    ('[cluster]\nack_interval = "0ms"', "cluster.ack_interval: must be more than 0"),
    ("[cluster]\nmissed_heartbeats = 0", "cluster.missed_heartbeats: must be at least 1"),
    (
        '[cluster.queue]\nmax_bytes = "64"',
        "cluster.queue.max_bytes: '64' is not a size. Write it like 64MB or 512KiB.",
    ),
    ("[cluster.queue]\nmax_bytes = 0", "cluster.queue.max_bytes: must be more than 0"),
    ("[cluster.queue]\nmax_bytes = 0.5", "cluster.queue.max_bytes: must be a whole number"),
    (
        '[[link]]\nfrom = "a"\nto = "b"\n[[link]]\nfrom = "a"\nto = "b"\ndelay = "slow"',
        "link 2.delay: 'slow' is not a quantity. Write it like 250ms.",
    ),
    (
        '[[link]]\nfrom = "a"\nto = "b"\nbandwidth = "10MB"',
        "link 1.bandwidth: '10MB' is not a bandwidth. Write it like 10MB/s or 64KiB/s.",
    ),
    (
        '[[link]]\nfrom = "a"\nto = "b"\nbandwidth = "0MB/s"',
        "link 1.bandwidth: must be more than 0",
    ),
]

NAMES_AND_PORTS = [
    ("", "there is no site. Add one, e.g. a line [site.room1]."),
    (
        '[site.a]\n[site."room 1"]',
        "line 2: 'room 1' is not a site name. "
        "Start with a letter or _ and go on with letters, digits, _ or -.",
    ),
    (
        '[site.a]\nlisten = "0.0.0.0:7101"',
        "site.a.address: nobody can connect to 0.0.0.0:7101. "
        "Set address to what other sites connect to.",
    ),
    (
        '[site.a]\nlisten = "10.0.0.5:0"',
        "site.a.listen: port 0 is any free port, but others must know where to reach a. "
        "Set listen with a port from 1 to 65535.",
    ),
    (
        '[site.a]\naddress = "10.0.0.5:7101"',
        "site.a.listen: port 0 is any free port, but others must know where to reach a. "
        "Set listen with a port from 1 to 65535.",
    ),
    (
        '[site.a]\nlisten = "127.0.0.1:7101"\naddress = "127.0.0.1:0"',
        "site.a.address: port 0 is any free port, but others must know where to reach a. "
        "Set address with a port from 1 to 65535.",
    ),
    (
        '[site.a]\nlisten = "127.0.0.1:7101"\n[site.b]\nlisten = "localhost:7101"',
        "site.b.listen: localhost:7101 is already taken by site 'a' (127.0.0.1:7101). "
        "Choose another port.",
    ),
    (
        '[site.a]\nlisten = "127.0.0.1:7101"\n'
        '[site.b]\nlisten = "0.0.0.0:7101"\naddress = "127.0.0.1:7102"',
        "site.b.listen: 0.0.0.0:7101 is already taken by site 'a' (127.0.0.1:7101). "
        "Choose another port.",
    ),
    (
        '[cluster]\nlisten = "127.0.0.1:7101"\n[site.a]\nlisten = "127.0.0.1:7101"',
        "site.a.listen: 127.0.0.1:7101 is already taken by the coordinator (127.0.0.1:7101). "
        "Choose another port.",
    ),
    (
        '[defaults]\nlisten = "0.0.0.0:7101"\naddress = "10.0.0.5:7101"\n[site.a]\n[site.b]',
        "site.b.address: 10.0.0.5:7101 is already taken by site 'a' (10.0.0.5:7101). "
        "Choose another port.",
    ),
]

SECURITY = [
    (
        '[site.a]\n[security]\ntls_cert = "c"',
        "security: tls_key is missing. TLS needs tls_cert and tls_key.",
    ),
    (
        '[site.a]\n[security]\ntls_key = "k"',
        "security: tls_cert is missing. TLS needs tls_cert and tls_key.",
    ),
    (
        '[site.a]\n[cluster]\nlisten = "0.0.0.0:7100"',
        "cluster.listen: 0.0.0.0:7100 can be reached from other machines, "
        "but there is no token. Set token_file in [security].",
    ),
    (
        '[site.a]\nlisten = "10.0.0.5:7101"',
        "site.a.listen: 10.0.0.5:7101 can be reached from other machines, "
        "but there is no token. Set token_file in [security].",
    ),
    (
        '[site.a]\nlisten = "127.0.0.1:7101"\naddress = "edge.example:7101"\n'
        '[security]\ntls_cert = "c"\ntls_key = "k"',
        "site.a.address: edge.example:7101 can be reached from other machines, "
        "but there is no token. Set token_file in [security].",
    ),
    (
        '[site.a]\nlisten = "10.0.0.5:7101"\n[security]\ntoken_file = "t"',
        "site.a.listen: 10.0.0.5:7101 can be reached from other machines, "
        "but there is no TLS. Set tls_cert and tls_key in [security], "
        "or plaintext = true if the network is trusted.",
    ),
    (
        '[site.a]\nmaster = "spark://h:7077"\nconf = { "spark.authenticate" = true }',
        "site.a.master: with master spark://h:7077 the ports of Spark can be reached from other "
        'machines, but they are open to all. Set "spark.network.crypto.enabled" = true in conf, '
        "or plaintext = true in [security] if the network is trusted.",
    ),
    (
        '[site.a]\nmaster = "yarn"\nconf = { "spark.authenticate" = true, '
        '"spark.ssl.rpc.enabled" = true, "spark.ui.enabled" = true }',
        "site.a.conf: with master yarn Spark's pages can be reached from other machines, and ask "
        'nobody for a token. Leave "spark.ui.enabled" out, or set "spark.acls.enable" = true and '
        "a filter that knows users.",
    ),
]

TOGETHER = [
    (
        '[site.a]\n[site.b]\nschedule = "fifo"',
        "site.b: shares its process and Spark with site 'a' but differs in schedule. "
        'Make them equal or set isolation = "process".',
    ),
    (
        '[site.a]\n[site.b]\nmaster = "local[4]"',
        "site.b: shares its process and Spark with site 'a' but differs in master. "
        'Make them equal or set isolation = "process".',
    ),
    (
        "[site.a]\nconf = { spark.same = 1, spark.x = 1 }\n"
        '[site.b]\nmaster = "local[4]"\nconf = { spark.same = 1, spark.x = 2, spark.y = 1 }',
        "site.b: shares its process and Spark with site 'a' "
        "but differs in master, conf 'spark.x', conf 'spark.y'. "
        'Make them equal or set isolation = "process".',
    ),
    (
        '[site.room1]\n[site.centre]\n[[link]]\nfrom = "romo1"\nto = "centre"',
        "link from romo1 to centre: unknown site 'romo1'. Did you mean 'room1'?",
    ),
    (
        '[site.room1]\n[site.centre]\n[[link]]\nfrom = "room1"\nto = "x"',
        "link from room1 to x: unknown site 'x'. Known sites: room1, centre.",
    ),
    (
        '[site.a]\n[[link]]\nfrom = "a"\nto = "a"',
        "link from a to a: a link joins two different sites",
    ),
    (
        '[site.a]\n[site.b]\n[[link]]\nfrom = "a"\nto = "b"\nboth = true\n'
        '[[link]]\nfrom = "b"\nto = "a"',
        "link from b to a: this link is given twice. "
        "Remove one; both = true also gives the way back.",
    ),
]


@pytest.mark.parametrize(("text", "line"), SHAPE + VALUES + NAMES_AND_PORTS + SECURITY + TOGETHER)
def test_error(text, line):
    with pytest.raises(ConfigError) as raised:
        parse_cluster(text, "cluster.toml")
    assert str(raised.value) == f"cluster.toml: {line}"


def test_place_message_and_remedy_are_apart():
    with pytest.raises(ConfigError) as raised:
        parse_cluster('[site.room1]\nisolation = "proces"', "cluster.toml")
    assert raised.value.to_dict() == {
        "kind": "ConfigError",
        "place": "cluster.toml: site.room1.isolation",
        "message": "unknown isolation 'proces'",
        "remedy": "Did you mean 'process'?",
    }


def test_sites_in_different_processes_may_differ():
    cluster = parse_cluster('[site.a]\n[site.b]\nisolation = "process"\nmaster = "local[4]"')
    assert [site.master for site in cluster.sites.values()] == ["local[2]", "local[4]"]


def test_a_missing_file(tmp_path):
    with pytest.raises(ConfigError) as raised:
        load_cluster(tmp_path / "none.toml")
    assert str(raised.value) == (
        f"{tmp_path}/none.toml: there is no such file. Leave it out to run all sites here."
    )


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        load_cluster(tmp_path)


def test_a_file_that_is_not_text(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"cluster\.toml: cannot be read: .*utf-8"):
        load_cluster(path)


def test_errors_name_the_file_as_it_was_given(tmp_path):
    path = tmp_path / "edge.toml"
    path.write_text("[site.a]\nslots = 0")
    with pytest.raises(ConfigError) as raised:
        load_cluster(path)
    assert raised.value.place == f"{path}: site.a.slots"
