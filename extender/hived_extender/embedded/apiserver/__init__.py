"""The embedded API server: Kubernetes REST over JSON, held in memory, on one event loop.

Layers, each knowing only those above it in this list: `statuses` and `models` (what is said), `selectors` and
`patches` (pure functions), `store` (versions and history), `kinds` and `pods` (what each kind demands), `registry`
(operations on objects), `rest` (paths, verbs and formats), `asgi` and `server` (bytes on a socket).
"""
