"""What a host's HCAs are, and which of their ports and GIDs a job uses."""
