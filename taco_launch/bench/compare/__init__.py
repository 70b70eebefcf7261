"""Compare runs: tables, differences, their causes, charts."""
