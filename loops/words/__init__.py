"""What a loop is called on a page: status words, reasons, the proof beside them, figures, and the summary before a start.

Pure: plain values in, text out. Every surface takes its words from here, so that no two of them say different things.
"""

from loops.words.figures import NOT_REPORTED, duration_words, money, seconds_words
from loops.words.proof import proof
from loops.words.start import longest_seconds, not_limited, reckoning, summary, worst_case
from loops.words.state import LoopFacts, Part, Words, plain
from loops.words.status import counter, reason_words, status_words

__all__ = [
    "NOT_REPORTED",
    "LoopFacts",
    "Part",
    "Words",
    "counter",
    "duration_words",
    "longest_seconds",
    "money",
    "not_limited",
    "plain",
    "proof",
    "reason_words",
    "reckoning",
    "seconds_words",
    "status_words",
    "summary",
    "worst_case",
]
