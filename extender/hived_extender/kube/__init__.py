"""Talking to the Kubernetes API server: calls, watches, leases, events; metrics and logs."""
