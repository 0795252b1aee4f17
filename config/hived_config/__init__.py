"""Configuration files to `hived.specs.ClusterSpec`, with every mistake reported at once."""
