"""Users' programs: pockets, classes, and their output."""
