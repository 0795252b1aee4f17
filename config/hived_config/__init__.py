"""Reads configuration files into `hived.values.specs.ClusterSpec`, and reports every mistake at once."""
