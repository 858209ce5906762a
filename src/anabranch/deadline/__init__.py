"""Deadlines: where operators run, by when each must be done, and which of them runs next."""
