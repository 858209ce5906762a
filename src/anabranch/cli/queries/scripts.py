"""Scripts in files, and the clusters that they run on."""

from __future__ import annotations

from pathlib import Path

from anabranch.config.cluster import ClusterConfig, load_cluster
from anabranch.coordinator.scripts.references import check_site_names, sites_named
from anabranch.errors import ConfigError
from anabranch.language import Script

ONLY_SITE = "local"


def read_script(path: Path) -> Script:
    return Script(read_text(path, "script"), str(path))


def read_text(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"there is no such {what}", place=str(path)) from None
    except UnicodeDecodeError as error:
        why = f"byte {error.start + 1} is no UTF-8"
        raise ConfigError(f"this is no text: {why}", place=str(path)) from None
    except OSError as error:
        why = "it is a folder" if path.is_dir() else error.strerror or str(error)
        raise ConfigError(f"the {what} cannot be read: {why}", place=str(path)) from None


def cluster_for(script: Script, path: Path | None) -> ClusterConfig:
    """The cluster of the file, or a cluster of the sites that the script names, all in this
    process.
    """
    if path:
        return load_cluster(path)
    check_site_names(script)
    return ClusterConfig.of_sites(sites_named(script) or [ONLY_SITE])
