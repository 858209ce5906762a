"""Stands by for tasks of other sites, and takes over."""
