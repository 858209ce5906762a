"""PostgreSQL tables, as tables to look up and as sinks."""
