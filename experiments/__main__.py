"""`python -m experiments`: what ./backchannel hands over to."""

import gc
import os
import resource
import sys
from types import ModuleType

from experiments.exits import MESSAGE_PREFIX, UNAVAILABLE

#: Address space that any command works with, in bytes. Below it, libraries end a command in ways of their own.
LEAST_BYTES = 1_200_000_000

_limit, _ = resource.getrlimit(resource.RLIMIT_AS)
if _limit != resource.RLIM_INFINITY and _limit < LEAST_BYTES:
    sys.stderr.write(
        f"{MESSAGE_PREFIX}this shell limits memory to {_limit / 1e9:.2g} GB, and commands need "
        f"{LEAST_BYTES / 1e9:g} GB of address space; raise the limit with 'ulimit -v'\n"
    )
    sys.exit(UNAVAILABLE)

# Imports make many objects and no garbage: collecting as often as by default takes 5 % of a short command.
gc.set_threshold(50_000)

# Looking for plugins of pydantic reads the metadata of every installed package, and there are none. A stand-in for its
# loader also saves what the loader imports, a tenth of a short command; workers inherit the variable.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
_loader = ModuleType("pydantic.plugin._loader")
vars(_loader)["get_plugins"] = tuple
sys.modules.setdefault(_loader.__name__, _loader)

# NumPy's and SciPy's linear algebra, of which nothing here has much, starts a thread for each CPU, each of which then
# spins for a while. Programs of campaigns and sessions get neither variable.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from experiments.cli import main  # noqa: E402

main()
