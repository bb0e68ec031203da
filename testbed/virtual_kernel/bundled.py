"""Starts the guest with Python modules from one file, instead of a search in folders for each.

    python -S -P bundled.py FILE FOLDER

FILE is written by testbed.virtual_kernel.bytecode: where each module's code is, and the code. In User-Mode Linux each
look into a folder is a system call of some ten microseconds, and a start has thousands. FOLDER is the guest's.
"""

# Only modules that are part of the interpreter, because the others are found in folders.
import gc
import marshal
import posix
import sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, ModuleType

#: Bytes of the length of the index, with which the file begins.
HEAD = 8
#: Of a module: file of its source or library, folders of a package's modules, place and length of its code. The code of
#: a library has length 0.
Found = tuple[str, list[str] | None, int, int]
MCL_FUTURE = 2


class Modules:
    """Finds and loads the modules of a file."""

    def __init__(self, file: str) -> None:
        self._file = posix.open(file, posix.O_RDONLY)
        length = int.from_bytes(posix.pread(self._file, HEAD, 0), "little")
        self._index: dict[str, Found]
        #: Where other modules are looked for.
        self.path: list[str]
        self.path, self._index = marshal.loads(posix.pread(self._file, length, HEAD))
        self._start = HEAD + length

    def find_spec(self, name: str, _path: "Sequence[str] | None" = None, _target: object = None) -> ModuleSpec | None:
        """The module's description, if it is in the file."""
        found = self._index.get(name)
        if found is None:
            return None
        origin, folders, _, length = found
        if length == 0:
            return ModuleSpec(name, ExtensionFileLoader(name, origin), origin=origin)
        spec = ModuleSpec(name, self, origin=origin, is_package=folders is not None)  # type: ignore[arg-type]
        spec.submodule_search_locations = folders
        spec.has_location = True
        return spec

    def create_module(self, _spec: ModuleSpec) -> None:
        """A module as any."""

    def exec_module(self, module: "ModuleType") -> None:
        """Runs the module's code."""
        assert module.__spec__ is not None
        exec(self.code(module.__spec__.name), vars(module))

    def code(self, name: str) -> "CodeType":
        """The module's code."""
        _, _, place, length = self._index[name]
        code: CodeType = marshal.loads(posix.pread(self._file, length, self._start + place))
        return code


def main(file: str, folder: str) -> None:
    """Runs the guest, which ends the machine."""
    # A page that is touched for the first time is a page fault, which costs as much as some tens of microseconds of
    # computing. The collector touches every object: it stays off.
    gc.disable()
    modules = Modules(file)
    sys.path[:] = modules.path
    # What is not in the file is compiled each time: bytecode beside a module may be there for one run and not for
    # another, and reading the clock on the way is virtual time.
    sys.pycache_prefix = "/nowhere"
    sys.meta_path.insert(0, modules)
    # Mapping OpenSSL takes an eighth of a start. Python does without where there is none, and nothing here needs it.
    sys.modules.update({"ssl": None, "_hashlib": None})  # type: ignore[dict-item]
    import ctypes

    libc = ctypes.CDLL(None)
    # Until all modules are imported, memory has its pages when it is mapped. Afterwards stacks of threads are, as a
    # whole, and they are hardly used.
    libc.mlockall(MCL_FUTURE)
    from testbed.virtual_kernel import guest

    libc.munlockall()
    guest.main(folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
