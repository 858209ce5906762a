"""The HTTP port of a site: its health, and its figures for Prometheus."""
