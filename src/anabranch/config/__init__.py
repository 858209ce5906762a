"""Reads `cluster.toml`, which an operator writes, checks it and turns it into frozen values."""
