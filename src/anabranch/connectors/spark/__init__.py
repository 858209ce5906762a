"""Everything that Spark itself reads and writes."""
