"""Build the images of lab hosts from this machine's distribution."""
