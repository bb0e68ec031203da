"""Errors of an agent and of its client, and of the node binary."""


class AgentError(Exception):
    """A request to an agent failed; the message is a sentence for the person who runs the experiment."""


class AgentUnreachable(AgentError):
    """An agent gave no complete answer: it has ended, or its host is lost."""


def panic(stderr: str) -> str:
    """Message and place of the panic among what a Rust program wrote; empty without one."""
    lines = stderr.splitlines()
    for place, message in zip(lines, lines[1:], strict=False):
        if " panicked at " in place:
            return f"{message} ({place.partition(' panicked at ')[2].rstrip(':')})"
    return ""
