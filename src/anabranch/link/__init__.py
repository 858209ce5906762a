"""Links between sites over Arrow Flight: gates, live inlets and outlets, subscriptions."""
