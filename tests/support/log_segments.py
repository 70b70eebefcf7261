"""Logs in segments, read to their ends."""

from taco_launch.agent.logs.segments import SegmentReader


def drain(reader: SegmentReader) -> bytes:
    """Return what is left to read."""
    pieces = []
    while data := reader.read():
        pieces.append(data)
    reader.close()
    return b"".join(pieces)
