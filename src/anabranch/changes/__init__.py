"""Results of any query, kept up to date under insertions and deletions."""
