"""The demonstration: an apartment with a fire, watched from a security centre."""
