"""The standby paper's experiment."""
