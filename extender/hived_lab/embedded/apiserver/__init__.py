"""The embedded API server: Kubernetes REST over JSON, held in memory, on one event loop."""
