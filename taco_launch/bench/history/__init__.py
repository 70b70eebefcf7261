"""Keep what was measured in one SQLite file, and exchange it with other programs."""
