"""Reads a file behind a link again and again, and writes a line `TIME WORD` for each read.

dfs_failover_peer.py mounted FILE PATH, or smbprotocol FILE; `once` prints what smbprotocol reads. In a mount each read
has a thread of its own: one of a file that was open when its server died waits for that server.
"""

import os
import sys
import threading
import time
from pathlib import Path

address, share, user, password = (os.environ["SMB_" + k] for k in ("ADDR", "SHARE", "USER", "PASS"))


def by_smbprotocol():
    import smbclient

    path = f"\\\\{address}\\{share}\\data\\who"
    # Its own limit for a connection is 60 seconds.
    with smbclient.open_file(path, share_access="r", username=user, password=password, connection_timeout=2) as file:
        return file.read()


how = sys.argv[1]
if how == "once":
    print(by_smbprotocol())
    sys.exit()
read = by_smbprotocol if how == "smbprotocol" else lambda: Path(sys.argv[3]).read_text()


def note(to):
    try:
        word = read()
    except Exception as e:
        word = f"{type(e).__name__}: {e}"
    to.write(f"{time.time():.3f} {word}\n")
    to.flush()


with open(sys.argv[2], "a") as to:
    while True:
        if how == "mounted" and threading.active_count() < 500:
            threading.Thread(target=note, args=[to], daemon=True).start()
        elif how != "mounted":
            note(to)
        time.sleep(0.05)
