"""A client that notes how long it waits: probe.py KIND PORT OUT FOLDER. KIND is `bob`, who stays connected, or `new`,
who connects and logs on each time, or `bob-writes`, whose writes are durable, or `host-writes`: a program that makes
such writes in FOLDER itself. Each line of OUT is [time, seconds, "ok" or a fault]."""

import contextlib
import json
import os
import sys
import time

from client import CLOSE, CREATE, FLUSH, READ, WRITE, Client, close, create, read, status_name, write

PAUSES = {"bob": 0.02, "new": 0.15, "bob-writes": 0.05, "host-writes": 0.05}
#: A client that comes back is known by this, as Windows is: MS-SMB2 3.2.1.2.
GUID = os.urandom(16)


def look(client):
    """Opens a file, reads 4 KiB and closes it."""
    status, message = client.call(CREATE, create("probe.bin", access=0x120089, disposition=1), timeout=40)
    if status:
        return "open: " + status_name(status)
    file_id = message[128:144]
    status, _ = client.call(READ, read(file_id, 0, 4096), timeout=40)
    client.call(CLOSE, close(file_id), timeout=40)
    return "read: " + status_name(status) if status else "ok"


def write_through(client):
    """Opens a file, writes 4 KiB, has them on the disk, and closes it."""
    status, message = client.call(CREATE, create("durable.bin"), timeout=40)
    if status:
        return "open: " + status_name(status)
    file_id = message[128:144]
    step = "write: "
    status, _ = client.call(WRITE, write(file_id, 0, bytes(4096)), timeout=40)
    if not status:
        step = "flush: "
        status, _ = client.call(FLUSH, close(file_id), timeout=40)
    client.call(CLOSE, close(file_id), timeout=40)
    return step + status_name(status) if status else "ok"


def write_here(folder):
    """Does the same without a server."""
    file = os.open(os.path.join(folder, "durable-here.bin"), os.O_RDWR | os.O_CREAT)
    os.pwrite(file, bytes(4096), 0)
    os.fsync(file)
    os.close(file)
    return "ok"


def main():
    kind, port, path, folder = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4]
    client = None
    with open(path, "a", buffering=1) as out:
        while True:
            began = time.time()
            try:
                if client is None and kind != "host-writes":
                    client = Client(port, "bob", timeout=10, guid=GUID)
                    # A new client's time includes its connection. The time of a connected client
                    # begins here, after the connection.
                    began = began if kind == "new" else time.time()
                if client is None:
                    result = write_here(folder)
                else:
                    result = write_through(client) if kind == "bob-writes" else look(client)
            except Exception as fault:
                result = f"{type(fault).__name__}: {str(fault)[:80]}"
            out.write(json.dumps([began, time.time() - began, result]) + "\n")
            if client and (kind == "new" or result != "ok"):
                with contextlib.suppress(OSError):
                    client.close()
                client = None
            time.sleep(PAUSES[kind])


if __name__ == "__main__":
    main()
