"""Word messages to people, and read their addresses."""
