"""Turns statements into definitions: it looks up what the names mean."""
