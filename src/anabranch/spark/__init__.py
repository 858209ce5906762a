"""Spark: its JVM and session, plans that are kept, jobs, memory, errors."""
