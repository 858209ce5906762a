"""The approx paper's experiment."""
