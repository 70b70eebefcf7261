"""Texts of `taco-launch help TOPIC`; those of exit codes, environment and profiles are pages of the reference, too."""
