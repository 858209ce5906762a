"""Statements → definitions: what the names mean."""
