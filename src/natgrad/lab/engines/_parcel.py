"""Jobs as bytes, for processes with another `__main__` and perhaps another import path."""

import os
import pickle
import sys
from importlib import import_module
from pathlib import Path

from natgrad.lab.engines._base import Job


def pack(job: Job) -> bytes:
    """Return a job as bytes, with what another process needs to import its function and config."""
    inner = pickle.dumps(job)
    main = _real_name() if b"__main__" in inner else None
    return pickle.dumps((import_path(), main, inner))


def unpack(parcel: bytes) -> Job:
    """Return the job; import the modules that it names."""
    path, main, inner = pickle.loads(parcel)
    sys.path += [folder for folder in path if folder not in sys.path]
    if main is not None:
        sys.modules["__main__"] = import_module(main)
    job: Job = pickle.loads(inner)
    return job


def import_path() -> list[str]:
    """Return `sys.path` with absolute folders."""
    return [os.path.abspath(folder) for folder in sys.path]


def _real_name() -> str | None:
    """Return the name by which other processes can import the `__main__` of this one."""
    main = sys.modules["__main__"]
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return str(spec.name)
    return Path(file).stem if file else None
