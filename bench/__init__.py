"""Measurements and experiments with the product, through its public face.

`.venv/bin/python -m bench` lists them. Nothing here is part of what is installed.
"""
