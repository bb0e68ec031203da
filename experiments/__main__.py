"""`python -m experiments`: what ./backchannel hands over to."""

import gc
import os
import sys
from types import ModuleType

# Imports make many objects and no garbage: collecting as often as by default takes 5 % of a short command.
gc.set_threshold(50_000)

# Looking for plugins of pydantic reads the metadata of every installed package, and there are none. A stand-in for its
# loader also saves what the loader imports, a tenth of a short command; workers inherit the variable.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
_loader = ModuleType("pydantic.plugin._loader")
vars(_loader)["get_plugins"] = tuple
sys.modules.setdefault(_loader.__name__, _loader)

from experiments.cli import main  # noqa: E402

main()
