"""Whatever Spark itself reads and writes."""
