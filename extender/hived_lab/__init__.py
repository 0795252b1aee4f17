"""A whole cluster on this machine: the embedded cluster, experiments on it, and its start."""
