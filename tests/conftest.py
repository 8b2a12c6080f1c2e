"""With several workers, one worker runs all tests of a module that share a set-up.

The set-up is then made once. Such modules start first, and single tests fill the remaining time.
"""

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
SHARED = {
    str(file.relative_to(ROOT))
    for file in Path(__file__).parent.rglob("test_*.py")
    if '@pytest.fixture(scope="module"' in file.read_text()
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    if config.getvalue("dist") != "load":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return file if file in SHARED else nodeid

    return Scheduling(config, log)
