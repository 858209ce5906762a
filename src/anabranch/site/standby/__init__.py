"""Standing by for tasks of other sites, and taking over."""
