"""Makes system calls like those of an attack, from a program of the host: local_calls.py KIND FOLDER WORKERS SECONDS.
Prints how many it has made."""

import os
import sys
import time


def fragments(folder, number):
    """The file with many extents that is one worker's."""
    return os.path.join(folder, f"fragments-{number:02}")


def cut(folder, number, _):
    os.truncate(fragments(folder, number), 0)
    yield


def delete(folder, number, _):
    os.unlink(fragments(folder, number))
    yield


def sync(folder, number, end):
    file = os.open(os.path.join(folder, f"synced-{number}"), os.O_RDWR | os.O_CREAT)
    while time.time() < end:
        os.pwrite(file, bytes(65536), 0)
        os.fsync(file)
        yield


def read_folder(folder, _, end):
    while time.time() < end:
        with os.scandir(os.path.join(folder, "many")) as entries:
            for _ in entries:
                pass
        yield


def names(folder, number, end):
    made = os.path.join(folder, "many", f"made-{number}")
    while time.time() < end:
        os.close(os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
        os.rename(made, made + "-moved")
        os.unlink(made + "-moved")
        yield


KINDS = {"cut": cut, "delete": delete, "sync": sync, "list": read_folder, "names": names}


def work(kind, folder, number, end, out):
    done = 0
    for _ in KINDS[kind](folder, number, end):
        done += 1
    os.write(out, done.to_bytes(8, "little"))


def main():
    kind, folder, workers, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    end, (into, out) = time.time() + seconds, os.pipe()
    for number in range(workers):
        if os.fork() == 0:
            work(kind, folder, number, end, out)
            os._exit(0)
    os.close(out)
    print(sum(int.from_bytes(os.read(into, 8), "little") for _ in range(workers)))


if __name__ == "__main__":
    main()
