"""Definitions onto sites and off again; restoring and moving what runs."""
