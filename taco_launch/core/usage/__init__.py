"""Average what a job uses, and hint why its GPUs idle."""
