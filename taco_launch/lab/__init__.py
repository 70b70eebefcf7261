"""Make practice hosts from containers on this machine, and put faults on them."""
