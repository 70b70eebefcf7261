"""Define the messages between processes, a class each, and how they are framed."""
