"""Traces (OpenTelemetry, OCSF): nothing is built here yet; the import rules already hold for it."""
