"""One module per resource of the turn API."""
