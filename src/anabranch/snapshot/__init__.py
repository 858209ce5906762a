"""Snapshots of what tasks hold: their parts, when they are taken, and where they are kept."""
