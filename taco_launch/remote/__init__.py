"""Everything that reaches a host: how it is reached, and how its agent is spoken to."""
