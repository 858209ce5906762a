"""What people and programs see of a running system: HTTP API, dashboard, metrics, events."""
