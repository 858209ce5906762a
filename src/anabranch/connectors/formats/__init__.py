"""Turns rows into text and text into columns: CSV, JSON, Arrow, Python's values.

Nothing here knows where the text comes from or goes to: files, records of Kafka and values of a
database follow the same rules.
"""
