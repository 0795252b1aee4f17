"""The scheduling service around the core: Kubernetes, HTTP, and the decisions between them."""
