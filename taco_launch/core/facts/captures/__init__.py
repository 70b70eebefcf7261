"""Captured outputs of tools: recognised by what they look like, and read into facts."""
