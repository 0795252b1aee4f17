"""Configuration files to `hived.values.specs.ClusterSpec`, with every mistake reported at once."""
