"""Coding agents as they are, headless, loop and tools in one box: what runs beside them inside, and their settings.

The runner in the box starts the client, takes its hooks' questions to the worker over the runner protocol and brings
the answers back. What holds such an agent is the box and its doors; the hooks advise, because client, runner and hooks
share the box and its user.
"""
