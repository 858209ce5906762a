"""Failover under a virtual clock: the very objects that sites run, with crashes, pauses and cuts.

A run is a function of its seed. `run.simulate(seed)` says whether every sink got exactly what the
plan's plain meaning says.
"""
