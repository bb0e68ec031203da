"""Runs a module of ours on a host: the module, what all of them share, and its arguments as one short program.

Ansible's own way packs every module with the library under AnsibleModule, which the host then compiles each time: a
third of a second of CPU for each task and host, several times what our modules do. They need nothing of it. A module's
DOCUMENTATION is its argument spec, held against the task here; on the host the module is `converge(wanted, report)`.
"""

from __future__ import annotations

import json
from pathlib import Path

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.parsing.plugin_docs import read_docstring
from ansible.plugins.loader import module_loader, module_utils_loader

from ansible.plugins.action import ActionBase

#: What of a documented option is part of an argument spec.
SPEC = ("type", "elements", "choices", "default", "required")
SHARED = "ansible.module_utils.backchannel"
#: On the host. Its own name for what modules share needs no Ansible there, and comes before one that is there.
PROGRAM = """
import json, sys, types
shared = sys.modules[{shared!r}] = types.ModuleType({shared!r})
exec(compile({shared_source!r}, {shared!r}, "exec"), shared.__dict__)
module = {{"__name__": {name!r}}}
exec(compile({source!r}, {name!r}, "exec"), module)
print(json.dumps(shared.answer(module["converge"], json.loads({wanted!r}), {check!r})))
"""


class ActionModule(ActionBase):
    """The modules' plugins, which have their names, are this class; some say what the controller does besides."""

    def run(self, tmp=None, task_vars=None):
        """One host."""
        result = super().run(tmp, task_vars)
        return {**result, **self.on_host(self.wanted(), task_vars)}

    def wanted(self):
        """The task's arguments, checked, with defaults."""
        documented = read_docstring(self._module_path())["doc"]["options"]
        spec = {name: {key: one[key] for key in SPEC if key in one} for name, one in documented.items()}
        _, checked = self.validate_argument_spec(argument_spec=spec)
        return checked

    def on_host(self, wanted, task_vars):
        """What the module says there."""
        program = PROGRAM.format(
            shared=SHARED,
            shared_source=Path(module_utils_loader.find_plugin("backchannel", mod_type=".py")).read_text(),
            name=self._task.action,
            source=Path(self._module_path()).read_text(),
            # A text from a vault becomes one as it is asked for.
            wanted=json.dumps(wanted, default=str),
            check=bool(self._task.check_mode),
        )
        python = constants.config.get_config_value("INTERPRETER_PYTHON", variables=task_vars)
        command = f"{self._compute_environment_string()} {python} -".strip()
        done = self._low_level_execute_command(command, in_data=program.encode())
        # A login that greets people does so before it.
        answer = next((line for line in reversed(done["stdout_lines"]) if line.startswith("{")), None)
        if done["rc"] == 0 and answer is not None:
            return json.loads(answer)
        said = (done["stderr"] or done["stdout"]).strip().splitlines()
        return {
            "failed": True,
            "msg": f"{python} ended with status {done['rc']}: {said[-1] if said else 'it said nothing'}",
            "module_stdout": done["stdout"],
            "module_stderr": done["stderr"],
        }

    def _module_path(self):
        path = module_loader.find_plugin(self._task.action, mod_type=".py")
        if path is None:
            raise AnsibleActionFail(f"there is no module {self._task.action}")
        return path
