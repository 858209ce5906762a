"""A user's Python functions as sources."""
