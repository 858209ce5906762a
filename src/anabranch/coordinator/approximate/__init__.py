"""Approximate queries: their workers, models and estimates."""
