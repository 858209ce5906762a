"""What conversations between sites run on: coroutines, signals and time, written against once.

`loop` runs them in a process, a simulation on a virtual clock. Between two awaits nothing else
happens in either, so what is written here needs no locks.
"""
