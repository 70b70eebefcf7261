"""Take a job from a request to its end: read it, send it to a backend, follow it."""
