"""The far side of a child process: run the jobs that are sent, end with whoever sends them."""

import os
import pickle
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread

import torch

from natgrad.errors import NatgradError
from natgrad.lab.engines._base import Outcome, execute, sentence
from natgrad.lab.engines._parcel import unpack
from natgrad.lab.failures import StoreError, WorkerError

TAKEN, RUNNING = b"taken", b"running"
"""Messages before the outcome: what happens now is the cell's doing; the cell's time runs now."""


def main(handle: int) -> None:
    """Run jobs from a connection, given as a file descriptor, until its other end is closed."""
    torch.set_num_threads(1)
    connection = Connection(handle)
    inbox: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(connection, inbox, os.getppid()), daemon=True).start()
    while True:
        parcel = inbox.get()
        connection.send_bytes(TAKEN)
        outcome = _run(parcel, lambda: connection.send_bytes(RUNNING))
        connection.send_bytes(pickle.dumps(outcome))


def _listen(connection: Connection, inbox: SimpleQueue[bytes], parent: int) -> None:
    """Pass jobs on; leave, in the middle of a cell if need be, when the sender is gone."""
    while os.getppid() == parent:  # a fork of the sender's could keep the connection open
        try:
            if connection.poll(1.0):
                inbox.put(connection.recv_bytes())
        except (EOFError, OSError):
            break
    os._exit(1)


def _run(parcel: bytes, running: Callable[[], None]) -> Outcome | NatgradError:
    try:
        job = unpack(parcel)
    except Exception as error:
        return Outcome("exception", message=f"the worker cannot import the cell: {sentence(error)}")
    try:
        return execute(job, running)
    except (StoreError, WorkerError) as error:
        return error
