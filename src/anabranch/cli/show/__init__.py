"""Prints what commands show."""
