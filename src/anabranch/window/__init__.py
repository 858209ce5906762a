"""Windows over streams: what joins and aggregates keep and compute. Arrow and numpy, no Spark."""
