"""The testbed's exceptions; every message is a sentence for a person."""


class TestbedError(Exception):
    """The testbed could not be built or failed during a run."""

    #: Not a test class, whatever its name begins with.
    __test__ = False


class Unavailable(TestbedError):
    """The machine, or the user, cannot run the backend; the message says what is missing and what to do."""


class CalibrationError(TestbedError):
    """Links do not do what a scenario declares; the testbed itself is sound."""
