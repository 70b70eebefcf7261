"""Plan what has to change on a host, from facts and the inventory."""
