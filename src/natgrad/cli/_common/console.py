"""Output of commands: results to standard output, everything else to standard error."""

import json
import sys
from typing import Any


def complain(message: str) -> int:
    """Print one sentence to standard error; return the exit code of bad usage."""
    print(f"natgrad: {message}", file=sys.stderr)
    return 2


def to_json(value: Any) -> str:
    """Return indented JSON text; NaN is an error."""
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
