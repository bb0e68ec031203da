"""Small simulated campaigns."""


def line(name: str, repetitions: int = 2, duration: str = "2 s", rate: str = "1 Mbit/s", sweep: bool = True) -> str:
    """One bulk transfer over a line; with `sweep`, at two delays."""
    return f"""
name: {name}
backend: sim
network: {{topology: line, forward: {{rate: {rate}, delay: 10 ms}}}}
stack: newreno
workload:
  - {{name: bulk, from: left, to: right}}
duration: {duration}
repetitions: {repetitions}
""" + ("sweep: {network.forward.delay: [10 ms, 20 ms]}\n" if sweep else "")
