"""The lab: hosts made of containers on this machine, and the faults that can be put on them."""
