"""Traces of clusters: who asked for how many GPUs, when and for how long; see README.md."""
