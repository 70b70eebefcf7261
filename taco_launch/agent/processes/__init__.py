"""Start, fork and limit processes of the agent itself."""
