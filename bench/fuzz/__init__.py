"""Malformed scripts, files and cluster files, many of them."""
