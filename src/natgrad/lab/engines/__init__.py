"""Where cells run: in this process, in processes of this machine, or on a Dask cluster."""

from collections.abc import Callable

from natgrad._checks import describe, instance, integer
from natgrad.errors import InvalidInputError, UnsupportedError
from natgrad.lab.engines._base import Engine, Job, Outcome
from natgrad.lab.engines._local import Local
from natgrad.lab.engines._serial import Serial

__all__ = ["ENGINES", "Engine", "Job", "Local", "Outcome", "Serial", "start_engine"]

ENGINES = ("local", "serial", "dask")


def start_engine(
    name: str = "local", *, workers: int | None = None, scheduler: str | None = None
) -> Engine:
    """Return an engine by name.

    Args:
        name: "local", "serial" or "dask".
        workers: Number of worker processes; by default one per core.
        scheduler: Address of a running Dask scheduler; by default "dask" starts a cluster here.

    Raises:
        InvalidInputError: If the arguments contradict each other.
        UnsupportedError: If Dask is not installed.
        SchedulerError: If no scheduler answers at the address.

    Example:
        >>> with start_engine("serial") as engine:
        ...     engine.workers
        1
    """
    if not isinstance(name, str) or name not in ENGINES:
        raise InvalidInputError(
            f"there is no engine {describe(name)}; choose from {', '.join(ENGINES)}."
        )
    workers = None if workers is None else integer(workers, "workers", low=1)
    scheduler = None if scheduler is None else instance(scheduler, "scheduler", str)
    if scheduler is not None and name != "dask":
        raise InvalidInputError(f"a scheduler needs the engine dask, not {name}.")
    if name == "dask":
        return _find_dask()(scheduler, workers)
    if name == "local":
        return Local(workers)
    if workers not in (None, 1):
        raise InvalidInputError(f"the engine serial has one worker, not {workers}.")
    return Serial()


def _find_dask() -> Callable[[str | None, int | None], Engine]:
    try:
        from natgrad.lab.engines._dask import Dask
    except ImportError as error:
        raise UnsupportedError(
            "the engine dask needs Dask, which is not installed: pip install 'natgrad[dask]'."
        ) from error
    return Dask
