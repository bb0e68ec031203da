"""`python -m experiments`: what ./backchannel hands over to."""

import os

# Looking for plugins reads the metadata of every installed package, and there are none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from experiments.cli import main  # noqa: E402

main()
