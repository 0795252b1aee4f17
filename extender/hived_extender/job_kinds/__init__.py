"""Job objects of Kubernetes and of others: read, held back and let go."""
