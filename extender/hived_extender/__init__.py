"""The shell around the core: Kubernetes, HTTP, the embedded cluster and the command line."""
