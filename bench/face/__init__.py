"""What a dashboard's viewer costs, and what its API does with anything that is sent to it."""
