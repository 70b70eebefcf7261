"""The queue of a state folder: which jobs wait, for which slots of which hosts, and which starts next."""
