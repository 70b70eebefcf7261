"""An inventory's document: its text, keys and values, and everything that is wrong with them."""
