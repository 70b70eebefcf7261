"""Begin a supervisor's process: its guard starts before the supervisor's own modules load, which takes equally long."""

from taco_launch.agent.processes import agent_program
from taco_launch.agent.store.folders import JobFolder


def main(folder: JobFolder, lock: int, agent: str) -> int:
    """Supervise an attempt to its end and return the job's exit code; `lock` is the descriptor of the job's lock."""
    folder.remove_socket()
    guard_process = agent_program.start(agent, "guard", str(folder.path))
    from taco_launch.agent.supervisor import supervisor  # noqa: PLC0415 - see above

    return supervisor.main(folder, agent, guard_process, lock)
