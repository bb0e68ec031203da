"""`python -m experiments`: what ./backchannel hands over to."""

import gc
import os

from testbed import pydantic_plugins

# Imports make many objects and no garbage: collecting as often as by default takes 5 % of a short command.
gc.set_threshold(50_000)

pydantic_plugins.skip()
# For workers, which inherit it.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from experiments.cli import main  # noqa: E402

main()
