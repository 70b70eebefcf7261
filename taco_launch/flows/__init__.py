"""The verbs as plain functions: they return results and print nothing."""
