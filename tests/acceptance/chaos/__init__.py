"""Chaos over separate processes: `python -m tests.acceptance.chaos` posts turns, breaks things, then counts.

A run follows from its seed: what is posted, what is broken, when and for how long. What it meets in the machine's own
scheduling does not, so the same seed may find another race; it will look in the same places.
"""
