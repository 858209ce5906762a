"""What an operator decides: `cluster.toml`, checked and turned into frozen values."""
