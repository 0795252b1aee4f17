"""The three ways the core says no. "No room" is none of them: that is the decision `Wait`."""


class HivedError(Exception):
    """Root of every error this project raises on purpose."""


class UserError(HivedError):
    """Unusable input; the message says what was given, what was expected, and where. Nothing changed."""

    def __init__(self, message: str, code: int = 400) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


class InvariantError(HivedError):
    """Our own bug: state that breaks a rule. The catcher stops serving."""
