"""Approximately-once: window results of a lost worker, estimated from those of the others."""
