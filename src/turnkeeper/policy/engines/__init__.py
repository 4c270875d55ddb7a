"""Policy engines, one module each."""
