"""Telling Kubernetes of decisions: bindings, evictions, events, conditions, statuses of groups, and the Secret."""
