"""The coordinator itself: its gate, catalog and sites, and what it asks of them when."""
