"""A stage's state: which input is in it, and its epochs and checkpoints. Pure."""
