"""Protection: which site runs each task, and which stands by."""
