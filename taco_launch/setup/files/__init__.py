"""Files that set-up writes, as text: daemon.json, SSH's, the unit's, and the container's definition."""
