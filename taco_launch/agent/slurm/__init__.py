"""Call Slurm's programs: give it jobs, ask about them, take them back."""
