"""The built-in agent loop. Runs inside the loop box, speaks the runner protocol over its stdio."""
