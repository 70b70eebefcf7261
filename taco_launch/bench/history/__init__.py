"""The history of what was measured: a SQLite file, its tables, its series, and its exchange with other programs."""
