"""What processes of taco-launch say to each other: the messages, each a class, and how they are framed."""
