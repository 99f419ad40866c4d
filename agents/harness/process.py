"""The harness' door to the operating system: start, adopt, watch, bound, end a turn's process. Knows nothing of AI.

The run folder of one attempt tells everything: `in` (the message), `out` and `err` (what was printed), `start` (the
wrapper's stat line, created exclusively before the command) and `exit` (code, begin and end on the boot clock, limit).
"""

from agents.harness.adoption import Taken, take_over
from agents.harness.descendants import end, end_leftovers, marked
from agents.harness.procfs import alive, boot_id, start_time
from agents.harness.spools import bound_output, read_tail
from agents.harness.starting import CannotStart, start
from agents.harness.watcher import Watcher
from agents.harness.wrapper import Exit, Process, exit_record

__all__ = [
    "CannotStart",
    "Exit",
    "Process",
    "Taken",
    "Watcher",
    "alive",
    "boot_id",
    "bound_output",
    "end",
    "end_leftovers",
    "exit_record",
    "marked",
    "read_tail",
    "start",
    "start_time",
    "take_over",
]
