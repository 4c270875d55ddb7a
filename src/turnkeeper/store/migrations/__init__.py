"""Migrations of the turn store, each named before_ or after_ the code that needs it."""
