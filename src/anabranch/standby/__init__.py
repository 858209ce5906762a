"""Semi-Active Standby: who takes over, from where, and what being ready for it costs."""
