"""The columns that every tuple travels with beside its own."""

EVENT_TIME = "_ts"
"""When it happened (µs)."""
BORN = "_born"
"""When the source tuple that completed it entered the system (µs)."""
POSITION = "_pos"
"""Its number in its stream, dense from 1."""
