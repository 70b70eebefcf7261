"""Send messages about jobs to people."""
