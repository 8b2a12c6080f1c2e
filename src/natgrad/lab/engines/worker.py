"""The far side of a child process: run the jobs that the parent sends, end when it ends."""

import os
import pickle
import signal
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread

import torch

from natgrad.lab.engines.base import Outcome, execute, sentence
from natgrad.lab.engines.parcel import unpack
from natgrad.lab.failures import StoreError

BEGUN = b"begun"


def main(handle: int, parent: int) -> None:
    """Run jobs from a connection until its other end is closed or the parent is gone.

    Args:
        handle: File descriptor of the connection.
        parent: Process id of the parent.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what Ctrl-C means
    torch.set_num_threads(1)
    connection = Connection(handle)
    inbox: SimpleQueue[bytes] = SimpleQueue()
    Thread(target=_listen, args=(connection, inbox, parent), daemon=True).start()
    while True:
        parcel = inbox.get()
        connection.send_bytes(BEGUN)
        connection.send_bytes(pickle.dumps(_run(parcel)))


def _listen(connection: Connection, inbox: SimpleQueue[bytes], parent: int) -> None:
    """Pass jobs on; leave, in the middle of a cell if need be, when the parent is gone."""
    while os.getppid() == parent:  # a fork of the parent could keep the connection open
        try:
            if connection.poll(1.0):
                inbox.put(connection.recv_bytes())
        except (EOFError, OSError):
            break
    os._exit(1)


def _run(parcel: bytes) -> Outcome | StoreError:
    try:
        job = unpack(parcel)
    except Exception as error:
        return Outcome("exception", message=f"the worker cannot import the cell: {sentence(error)}")
    try:
        return execute(job)
    except StoreError as error:
        return error
