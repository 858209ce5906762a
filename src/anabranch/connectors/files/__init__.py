"""Files: CSV, JSON lines and Parquet, as sources, sinks and tables."""
