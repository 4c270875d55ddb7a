"""Where SQLite and PostgreSQL differ: how they are opened, locked and kept busy. Nothing else may ask which it is."""
