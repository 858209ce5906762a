"""The reports of the system about itself."""
