"""How results look: tables, JSON and YAML, progress. No verb, no option."""
