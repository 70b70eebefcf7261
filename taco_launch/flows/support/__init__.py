"""What a colleague needs to look into a job, as one archive without the secrets that can be recognised."""
