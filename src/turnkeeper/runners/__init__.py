"""Sandboxes that others run: the runner protocol over HTTP, `/worker/v1` (contract 2.11 and amendment 12).

A runner elsewhere is one more loop box: its calls become the frames that a harness writes, and everything after that is
the worker's as for any other box. Nothing here decides about a turn.
"""
