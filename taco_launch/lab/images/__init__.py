"""The images of a lab: built of this machine's distribution, with their packages and wheels."""
