"""From outside to a numbered stream: event time, lateness, pacing, journal."""
