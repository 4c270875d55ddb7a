"""Turnkeeper runs AI-agent turns durably and puts a policy Guardian in the path of every step."""

__version__ = "0.1.0"
