"""Benchmarks, experiments and the simulation as commands."""
