"""The turn API: parse, call, render. No SQL and no rules about turns here."""
