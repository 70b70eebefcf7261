"""Place a job on free slots: which hosts, and which GPUs by how they are linked."""
