"""`python -m experiments`: what ./backchannel hands over to."""

from experiments.cli import main

main()
