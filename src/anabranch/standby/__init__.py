"""Semi-Active Standby: who takes over, from which point, and what the protection costs."""
