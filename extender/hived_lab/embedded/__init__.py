"""The embedded cluster: an API server, nodes and a scheduler loop on this machine, in place of a Kubernetes cluster."""
