"""The agent's file with what lies beside it, as hosts get it."""

from pathlib import Path

from taco_launch.hosts.remote import agent_bundle, py_spy


def build(folder: Path) -> Path:
    """Make a folder that holds the agent and py-spy alone; give the agent's file."""
    folder.mkdir(exist_ok=True)
    contents = agent_bundle.sources()
    path = folder / agent_bundle.name(contents)
    path.write_bytes(agent_bundle.build(contents))
    program = py_spy.program()
    assert program is not None
    (folder / program[0]).write_bytes(program[1])
    return path
