"""The runtime that conversations between sites are written against: coroutines, signals and time.

`loop` runs them in a process, a simulation on a virtual clock. Between two awaits nothing else
happens in either, so code on top of it needs no locks.
"""
