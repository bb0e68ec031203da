"""The agent's one exception."""


class AgentError(Exception):
    """Something could not be done on a node; the message is a sentence for the person who asked.

    `status` is the HTTP status that tells the same: 400 for a bad request, 404 for an unknown one, 409 when the
    agent's state forbids it, 500 when the node failed.
    """

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.status = status
