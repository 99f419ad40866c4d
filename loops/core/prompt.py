"""The message of one run: the template with its two placeholders filled in, in one pass (product.md 3.1)."""

import re

RUN = "{{run}}"
PREVIOUS = "{{previous_response}}"
_PLACEHOLDER = re.compile(re.escape(RUN) + "|" + re.escape(PREVIOUS))


def render(template: str, run_number: int, previous: str) -> str:
    """What run `run_number` is asked; `previous` is put in as it is and never expanded again."""
    return _PLACEHOLDER.sub(lambda found: str(run_number) if found[0] == RUN else previous, template)
