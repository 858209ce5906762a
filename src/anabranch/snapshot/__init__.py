"""Snapshots of what tasks hold: what they are made of, when they are taken, where they are kept."""
