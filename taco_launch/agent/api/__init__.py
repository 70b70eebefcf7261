"""What the agent answers to the controller: one module for each kind of operation, and `serve`, which calls them."""
