"""MASTER queries: which combinations of tuples come into being, and when."""
