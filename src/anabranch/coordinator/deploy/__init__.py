"""Puts definitions onto sites and takes them off again; restores and moves what runs."""
