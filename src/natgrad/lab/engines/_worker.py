"""The child's side: run the jobs that the parent sends, and end with the parent."""

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
"""Messages before the outcome: the job has arrived; the cell has started, and its time runs."""


def main(handle: int) -> None:
    """Run jobs from a connection, given as a file descriptor, until the parent closes it."""
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
    """Pass jobs on; end this process, even in the middle of a cell, when the parent has ended."""
    while os.getppid() == parent:  # a fork of the parent could keep the connection open
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
