"""The deadline paper's experiment."""
