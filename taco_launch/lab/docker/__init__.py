"""Drive the Docker Engine that runs the lab's hosts."""
