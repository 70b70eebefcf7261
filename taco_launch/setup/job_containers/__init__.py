"""Prepare, list and remove the containers that jobs bring; build images."""
