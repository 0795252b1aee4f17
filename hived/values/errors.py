"""Errors of the core. "No room" is not an error: it is the decision `Wait`."""


class HivedError(Exception):
    """Root of every error this project raises on purpose."""


class UserError(HivedError):
    """Unusable input; the message says what was given, what was expected, and where. Nothing changed."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class InvariantError(HivedError):
    """A bug of hived: the state breaks a rule. The catcher stops serving."""
