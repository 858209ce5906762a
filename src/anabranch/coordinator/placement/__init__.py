"""Where things run: what is measured, placing, re-placing, deadlines."""
