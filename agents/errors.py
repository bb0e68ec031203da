"""Errors of an agent and of its client."""


class AgentError(Exception):
    """A request to an agent failed; the message is a sentence for the person who runs the experiment.

    `status` is the HTTP status of the answer: 400 for a bad request, 403 for one that is not granted, 404 for an
    unknown one, 409 when the agent's state forbids it, 500 when the node failed.
    """

    def __init__(self, message: str, status: int = 500) -> None:
        super().__init__(message)
        self.status = status


class AgentUnreachable(AgentError):
    """An agent gave no complete answer: it has ended, or its host is lost."""
