"""`python -m backchannel`."""

from distribution.package.command import main

main()
