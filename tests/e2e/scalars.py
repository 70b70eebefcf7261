"""Writes a scalar as rank 0, as a training does: `scalars.py FOLDER SECONDS`; the other ranks only wait."""

import os
import sys
import time

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

if os.environ["RANK"] == "0":
    writer = EventFileWriter(sys.argv[1])
    for step in range(5):
        value = Summary.Value(tag="loss", simple_value=42.125 - step)
        writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
    writer.flush()
time.sleep(float(sys.argv[2]))
