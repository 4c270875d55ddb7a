"""The Guardian: decides each step of an agent, chains what was asked and keeps what was answered (ACS v0.1.0)."""
