"""Read lines of Arena, and the jobs that they submit."""
