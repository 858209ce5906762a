"""Plans made once, when a task is deployed, and run on whatever tuples come."""
