"""What a host is: the probe that looks, and a parser for each subject; pure, part of the agent."""
