"""Answer the controller: one module for each group of operations."""
