"""Setting hosts up and taking it back: plan, apply, prove, and what set-up brings along."""
