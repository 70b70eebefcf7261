"""Combine options, files and defaults into one request, and resolve it into a job."""
