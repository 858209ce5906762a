"""Text → tokens → statements."""
