"""Shipped fakes, each held to the contract of what it stands in for."""
