"""Turns outside data into a numbered stream: event time, lateness, pacing, journal."""
