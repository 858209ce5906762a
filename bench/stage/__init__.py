"""Stages against Spark's own streaming aggregate, and their faults."""
