"""How a placed job is started: command line and environment, pure."""
