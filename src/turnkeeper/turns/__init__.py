"""Turns: their lifecycle, budgets, results and queue (pure), and the worker that runs them through its ports."""
