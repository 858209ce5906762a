"""Approximately-once: estimates window results of a lost worker from those of the others."""
