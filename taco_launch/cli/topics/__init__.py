"""Hold the texts of `taco-launch help TOPIC`."""
