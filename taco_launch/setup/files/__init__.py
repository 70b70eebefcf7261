"""Write the text of files: daemon.json, SSH files, the unit, the container's definition."""
