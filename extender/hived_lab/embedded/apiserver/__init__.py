"""The embedded API server: Kubernetes REST over JSON, held in memory, on one event loop.

Each layer knows only those above it: `statuses` and `models` (what is said), `selectors`, `patches` and `protobuf`
(pure functions), `store` (versions and history), `validation`, `kinds` and `pods` (what each kind demands), `tables`
(how it is printed), `resources` (the table of all that), `registry` (operations on objects), `pod_policy` (what only
hived writes), `requests`, `watching`, `formats` and `discovery` (paths and formats), `rest` (verbs), `asgi` and
`server` (bytes on a socket).
"""
