"""The hierarchy of cells, its state and its journal."""
