"""The embedded API server: Kubernetes REST over JSON, held in memory, on one event loop.

Each layer knows only those above it. `statuses`, `bodies` and `models` are errors and objects; `selectors`, `patches`
and `protobuf` pure functions; `store` versions and history. `validation`, `kinds`, `pods` and `jobs` are the rules of
kinds, `tables` their columns, `resources` the table of all that. `registry` has the operations on objects,
`pod_policy` the parts that only hived writes. `requests`, `watching`, `formats` and `discovery` are paths and formats,
`reads` and `rest` the verbs, `asgi` and `server` bytes on a socket.
"""
