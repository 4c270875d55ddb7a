"""Builds the platform out of its parts; the only module that may know all of them."""
