"""MASTER queries: which combinations of tuples arise, and when."""
