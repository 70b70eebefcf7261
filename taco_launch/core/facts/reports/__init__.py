"""Facts as people and programs see them: documents, summaries, verdicts, comparisons, changes."""
