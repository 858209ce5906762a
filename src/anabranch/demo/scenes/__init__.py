"""The scenes that follow the fire: one capability each, shown on real sites and checked."""
