"""Spark SQL expressions: their names, types, and what may be done with them."""
