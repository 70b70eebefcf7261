"""A host's operating system, engine, PCI devices, training image, and what set-up left there."""
