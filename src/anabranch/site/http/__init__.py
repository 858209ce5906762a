"""What a site says over HTTP: its health, and its figures for Prometheus."""
