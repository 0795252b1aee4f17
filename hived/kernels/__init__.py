"""Functions of the core as machine code."""
