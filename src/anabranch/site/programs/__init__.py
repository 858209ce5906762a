"""Users' programs: pockets, classes, what they give."""
