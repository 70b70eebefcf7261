"""What a host's GPUs are, how they are linked, and what keeps them from being used."""
