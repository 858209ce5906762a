"""Which site runs what: the problem as data, and the methods that solve it."""

METHODS = ("best", "dp", "search", "sbon", "vote", "sbon-landmarks", "vote-landmarks")
"""The names of the placers in `placement.methods`; here, since that takes long to import."""
