"""The verbs of bench: measure, compare, show what was measured."""
