"""Calls on a file of a node's mount, past its server: `python3 -m harness.late FILE`.

Each line of standard input is a call, `write N`, `sync` or `both N`, and each line of standard output its end, `ok` or
the name of an error. It is a program of its own: a process that has the file open and starts programs closes
copies of it, and each close waits for a mount that does not answer.
"""

import errno
import os
import sys

# Bytes of one write.
BLOCK = 4096


def block(number):
    return number.to_bytes(8, "little") * (BLOCK // 8)


def main():
    file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600)
    for line in sys.stdin:
        act, *number = line.split()
        end = "ok"
        try:
            if act in ("write", "both"):
                os.pwrite(file, block(int(number[0])), 0)
            if act in ("sync", "both"):
                os.fsync(file)
        except OSError as error:
            end = errno.errorcode.get(error.errno, str(error.errno))
        print(end, flush=True)


if __name__ == "__main__":
    main()
