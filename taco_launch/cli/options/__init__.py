"""Define the options of all commands and those of a job, and recognise other tools' options."""
