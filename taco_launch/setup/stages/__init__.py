"""The stages of set-up, one file each, and what only one of them needs."""
