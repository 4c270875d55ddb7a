"""The stores: the turn side on SQLAlchemy Core (SQLite or PostgreSQL), the Guardian's chain on raw sqlite3."""
