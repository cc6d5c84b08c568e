"""Finding tools by what they do: entries, text, ranking and the searcher. Pure but for `searcher`'s awaits."""
