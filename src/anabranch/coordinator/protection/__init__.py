"""Who protects what."""
