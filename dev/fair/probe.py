"""A client that notes how long it waits: probe.py KIND PORT OUT, where KIND is `bob`, who stays connected, or
`new`, who connects and logs on each time. Each line of OUT is [time, seconds, "ok" or a fault]."""

import contextlib
import json
import sys
import time
import uuid

from client import CLOSE, CREATE, READ, Client, close, create, read, status_name

PAUSES = {"bob": 0.02, "new": 0.15}
#: A client that comes back is known by this, as Windows is: MS-SMB2 3.2.1.2.
GUID = uuid.uuid4()


def look(client):
    """Opens a file, reads 4 KiB and closes it."""
    status, message = client.call(CREATE, create("probe.bin", access=0x120089, disposition=1), timeout=40)
    if status:
        return "open: " + status_name(status)
    file_id = message[128:144]
    status, _ = client.call(READ, read(file_id, 0, 4096), timeout=40)
    client.call(CLOSE, close(file_id), timeout=40)
    return "read: " + status_name(status) if status else "ok"


def main():
    kind, port, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    client = None
    with open(path, "a", buffering=1) as out:
        while True:
            began = time.time()
            try:
                if client is None:
                    client = Client(port, "bob", timeout=10, guid=GUID)
                    # A new client's time includes its connection. The time of a connected client
                    # begins here, after the connection.
                    began = began if kind == "new" else time.time()
                result = look(client)
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
