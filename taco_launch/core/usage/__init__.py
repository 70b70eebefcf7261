"""Judge how much of its hardware a job uses: averages over time and hosts, and hints why GPUs idle; pure."""
