"""Connect by SSH: keys, host keys, configuration; the only room that imports fabric."""
