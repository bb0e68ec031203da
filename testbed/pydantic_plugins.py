"""pydantic without its search for plugins, which reads the metadata of every installed package. There are none.

A stand-in for its loader also saves what the loader imports: a tenth of a short command, a twelfth of a guest's start.
"""

import sys
from types import ModuleType


def skip() -> None:
    """To be called before pydantic is imported."""
    loader = ModuleType("pydantic.plugin._loader")
    vars(loader)["get_plugins"] = tuple
    sys.modules.setdefault(loader.__name__, loader)
