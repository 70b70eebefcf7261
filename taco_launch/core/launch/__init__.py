"""Plan the command line and environment of a placed job, with the reason of each part."""
