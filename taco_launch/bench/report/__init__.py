"""Show a sweep to people: as one page, as Markdown, and as a figure."""
