"""Find what people are still to write in a line, or have broken."""
