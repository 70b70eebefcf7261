"""Read the stacks of a host's ranks with py-spy."""
