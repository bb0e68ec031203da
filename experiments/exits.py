"""Exit statuses of `./backchannel`, and the prefix of its error messages. Programs that start it read both."""

OK = 0
#: A run failed or stayed invalid, or a comparison found a regression.
FAILED = 1
#: A file or the command line is wrong.
BAD_INPUT = 2
#: This machine lacks something, such as root rights or a program.
UNAVAILABLE = 3
#: SIGINT, as a shell reports it.
INTERRUPTED = 130

#: Starts each error message that carries no file name.
MESSAGE_PREFIX = "backchannel: "
