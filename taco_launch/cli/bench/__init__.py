"""Define the commands `bench` and `nightly`."""
