"""Kubernetes' rules of where a pod may run, for the service and for the embedded cluster; see README.md."""
