"""The placers side by side, on measured and on generated latencies."""
