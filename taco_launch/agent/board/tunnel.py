"""`agent tunnel`: streams of a caller to the TensorBoard of a job, for as long as that runs."""

import sys

from taco_launch.agent.board import board
from taco_launch.agent.rank import tunnel
from taco_launch.agent.rank.caller_stream import CallerStream
from taco_launch.agent.store.folders import JobFolder


def main(folder: JobFolder, port: int) -> int:
    """Serve them."""
    return tunnel.serve(CallerStream(sys.stdin.buffer), None, port, lives=lambda: board.lives(folder))
