"""Attacks on the server in SMB_*: attacks_peer.py DIRECTORY KIND [NAME...].

DIRECTORY is the server's, KIND one of KINDS. With names, only those attacks run; --list prints the names.
"""

import fnmatch
import sys
import threading
import time

from attacks import accounts, full, holdings, strangers, work
from attacks.scene import Scene, attack, demand

KINDS = {
    "strangers": strangers.ATTACKS,
    "accounts": accounts.ATTACKS,
    "full": full.ATTACKS,
    "work": work.ATTACKS,
    "holdings": holdings.MEMORY,
    "descriptors": accounts.DESCRIPTORS + holdings.DESCRIPTORS,
    "sealed": accounts.SEALED,
}


def main():
    directory, kind, *names = sys.argv[1:]
    if names == ["--list"]:
        return print(*(name for name, _ in KINDS[kind]), *(["06-slow-reader"] if kind == "accounts" else []))
    scene = Scene(directory)

    def wanted(name):
        return not names or any(fnmatch.fnmatchcase(name, pattern) for pattern in names)

    slow, cut = None, []
    if kind == "accounts" and wanted("06-slow-reader"):
        # This attack mostly waits, so it runs in parallel with the others.
        slow = threading.Thread(target=lambda: cut.append(accounts.slow_reader(scene)), daemon=True)
        slow.start()
    for name, function in KINDS[kind]:
        if wanted(name):
            with attack(name) as say:
                function(scene, say)
    if slow:
        with attack("06-slow-reader") as say:
            slow.join(95)
            say(f"cut after {cut[0]:.0f} s" if cut and cut[0] else "not cut within 85 s")
            demand(cut and cut[0], "a client that reads no replies stays connected as long as it sends")
    time.sleep(0.1)


main()
