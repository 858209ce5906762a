"""The commands of `python -m bench`, and what they show."""
