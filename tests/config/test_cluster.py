"""What a cluster file comes to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.config import cluster as cluster_module
from anabranch.config.cluster import (
    ClusterConfig,
    HostPort,
    LinkConfig,
    SiteConfig,
    load_cluster,
    parse_cluster,
)
from anabranch.errors import ConfigError

REFERENCE = Path(__file__).parents[2] / "docs" / "cluster.md"
EXAMPLES = re.findall(r"```toml\n(.*?)```", REFERENCE.read_text(encoding="utf-8"), re.DOTALL)


def test_defaults():
    cluster = parse_cluster("[site.room1]")
    assert cluster == ClusterConfig.of_sites(["room1"])
    assert cluster.ack_interval_us == 250_000
    assert cluster.heartbeat_interval_us == 500_000
    assert cluster.missed_heartbeats == 4
    assert cluster.listen == HostPort("127.0.0.1", 0)
    assert cluster.queue_bytes == 40_000_000
    assert not cluster.security.tls


def test_site_defaults():
    site = parse_cluster("[site.room1]").sites["room1"]
    assert site == SiteConfig(
        name="room1",
        listen=HostPort("127.0.0.1", 0),
        address=None,
        isolation="thread",
        master="local[2]",
        conf={},
        slots=1,
    )
    assert site.reached_at == site.listen
    assert site.shares_process
    assert not site.remote


@pytest.mark.parametrize("text", EXAMPLES)
def test_every_example_of_the_reference_is_valid(text):
    assert parse_cluster(text).sites


def test_the_full_example_of_the_reference():
    cluster = parse_cluster(EXAMPLES[0])
    assert cluster.listen == HostPort("10.0.0.2", 7100)
    assert cluster.security.tls
    assert list(cluster.sites) == ["room1", "room2", "centre"]
    assert cluster.sites["room2"].slots == 2
    assert [name for name, site in cluster.sites.items() if site.remote] == ["centre"]
    assert cluster.link("room2", "room1").bandwidth == 10_000_000


def test_the_example_of_the_docstring_is_valid():
    lines = (cluster_module.__doc__ or "").splitlines()
    example = "\n".join(line[4:] for line in lines if line.startswith("    "))
    assert parse_cluster(example + "\n[site.centre]\nconf.spark.driver.memory = '1g'").links


@pytest.mark.parametrize(
    ("written", "held"), [('"64MB"', 64_000_000), ('"1KiB"', 1024), ("77", 77)]
)
def test_sizes_are_text_or_bytes(written, held):
    disk = parse_cluster(f"[defaults]\ndisk = {written}\n[site.a]\n[site.b]\ndisk = 0").sites
    assert (disk["a"].disk, disk["b"].disk) == (held, 0)
    cluster = parse_cluster(f"[site.a]\n[cluster.queue]\nmax_bytes = {written}")
    assert cluster.queue_bytes == held


def test_sites_override_defaults():
    cluster = parse_cluster("""
        [defaults]
        isolation = "process"
        slots = 3
        [site.a]
        [site.b]
        slots = 2
    """)
    assert [site.slots for site in cluster.sites.values()] == [3, 2]
    assert {site.isolation for site in cluster.sites.values()} == {"process"}


def test_spark_settings_are_combined_with_the_defaults_one_by_one():
    cluster = parse_cluster("""
        [defaults]
        isolation = "process"
        conf = { "spark.driver.memory" = "1g", "spark.ui.enabled" = true }
        [site.a]
        conf = { "spark.driver.memory" = "4g", "spark.sql.shuffle.partitions" = 2 }
    """)
    assert cluster.sites["a"].conf == {
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "true",
        "spark.sql.shuffle.partitions": "2",
    }


def test_spark_settings_need_no_quotes():
    cluster = parse_cluster('[site.a.conf]\nspark.driver.memory = "1g"')
    assert cluster.sites["a"].conf == {"spark.driver.memory": "1g"}


def test_links():
    cluster = parse_cluster("""
        [site.a]
        [site.b]
        [site.c]
        [[link]]
        from = "a"
        to = "b"
        delay = "20ms"
        jitter = "5ms"
        bandwidth = "10MB/s"
        both = true
        [[link]]
        from = "b"
        to = "c"
        delay = "1s"
    """)
    there = LinkConfig(
        sender="a", receiver="b", delay_us=20_000, jitter_us=5_000, bandwidth=10_000_000.0
    )
    assert cluster.link("a", "b") == there
    assert cluster.link("b", "a") == there.reversed()
    assert cluster.link("b", "c").delay_us == 1_000_000
    assert cluster.link("c", "b") == LinkConfig(sender="c", receiver="b")
    assert cluster.link("b", "c").emulated
    assert not cluster.link("c", "b").emulated


@pytest.mark.parametrize(
    ("address", "remote"),
    [
        ("127.0.0.1:7101", False),
        ("127.3.2.1:7101", False),
        ("localhost:7101", False),
        ("[::1]:7101", False),
        ("10.0.0.5:7101", True),
        ("centre.example:7101", True),
        ("[2001:db8::1]:7101", True),
    ],
)
def test_a_site_beyond_loopback_is_remote(address, remote):
    cluster = parse_cluster(f"""
        [security]
        token_file = "token"
        plaintext = true
        [site.a]
        listen = "127.0.0.1:7001"
        address = "{address}"
    """)
    site = cluster.sites["a"]
    assert str(site.reached_at) == address
    assert site.remote is remote
    assert site.shares_process is not remote


def test_a_remote_site_may_have_a_spark_of_its_own_and_a_port_used_here():
    cluster = parse_cluster("""
        [security]
        token_file = "token"
        plaintext = true
        [site.a]
        listen = "127.0.0.1:7101"
        [site.b]
        listen = "0.0.0.0:7101"
        address = "10.0.0.5:7101"
        master = "spark://10.0.0.5:7077"
    """)
    assert cluster.sites["b"].remote


def test_of_sites_checks_names():
    with pytest.raises(ConfigError) as raised:
        ClusterConfig.of_sites(["room1", "2nd"])
    assert str(raised.value) == (
        "'2nd' is not a site name. Start with a letter or _ and go on with letters, digits, _ or -."
    )


@pytest.mark.parametrize("text", EXAMPLES)
def test_json_and_back(text):
    cluster = parse_cluster(text)
    assert ClusterConfig.model_validate_json(cluster.model_dump_json()) == cluster


def test_addresses_are_text_in_json():
    assert parse_cluster("[site.a]").model_dump(mode="json")["listen"] == "127.0.0.1:0"


def test_paths_start_from_the_folder_of_the_file(tmp_path):
    path = tmp_path / "cluster.toml"
    path.write_text('[site.a]\n[security]\ntoken_file = "token"\ntls_ca = "/etc/ca.crt"')
    security = load_cluster(path).security
    assert security.token_file == str(tmp_path / "token")
    assert security.tls_ca == "/etc/ca.crt"
    assert security.tls_cert is None
