"""Plan what several stages need: Docker's packages and settings, firewall, image copy."""
