"""The testbed's exceptions; every message is a sentence for users."""


class TestbedError(Exception):
    """The testbed could not be built or failed during a run."""

    #: For pytest, which takes classes named Test... for tests.
    __test__ = False


class BadRequest(TestbedError):
    """Nobody could do what the user asked for; the message gives what is allowed."""


class Unavailable(TestbedError):
    """The machine or the user cannot run the backend; the message gives what is missing and the remedy."""


class HostLost(TestbedError):
    """A host does not answer, and may do so again later."""


class LeaseOver(TestbedError):
    """The lab's hosts are taken away before a run would end."""


class CalibrationError(TestbedError):
    """Links deviate from what a scenario declares; the testbed itself works."""
