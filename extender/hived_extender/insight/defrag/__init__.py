"""Defragmentation: which groups to move so that wanted cells become free, and the moves themselves."""
