"""How rows are written down, and how columns come of that: CSV, JSON, Arrow, Python's values.

Nothing here knows where the text comes from or goes to: files, records of Kafka, values of a
database are read and written by the same rules.
"""
