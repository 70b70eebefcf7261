"""The stacks of a host's ranks, as py-spy reads them."""
