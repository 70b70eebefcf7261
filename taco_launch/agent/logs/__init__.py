"""Write logs of ranks in segments with times; merge and query them."""
