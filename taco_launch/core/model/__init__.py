"""Hold the nouns: hosts, jobs, requests, plans, runs; frozen values, to JSON and back."""
