"""Scripts: every statement is checked, then all of them take effect."""
