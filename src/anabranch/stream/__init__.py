"""Streams without threads, clocks or networks: positions, watermarks, epochs, acks, release.

These classes decide what is kept, sent, dropped and released. `anabranch.link` gives them locks and
sockets; a simulation can drive the very same objects.
"""
