"""A run as it was planned, as it is seen, and what follows: values without behaviour, for messages and records."""
