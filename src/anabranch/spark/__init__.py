"""Spark: its JVM and session, kept plans, jobs, memory, errors."""
