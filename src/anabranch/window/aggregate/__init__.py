"""Window aggregates: partial states, panes, windows."""
