"""The HTTP side: identities and rights of callers, their questions, and the answers."""
