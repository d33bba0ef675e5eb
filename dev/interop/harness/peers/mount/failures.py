"""Checks with a server that is killed, stopped, or waits for its disk."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from ...model import Failure
from .fixture import PATIENCE, Mount, equal, mounted, until


class Own:
    """A Frevo server for one check, which may kill it."""

    def __init__(self, ctx, name="own", port=4460):
        self.ctx, self.folder, self.port = ctx, ctx.work / name, port
        (self.folder / "share").mkdir(parents=True)
        (self.folder / "password").write_text("Passw0rd")
        (self.folder / "password").chmod(0o600)
        self.start()

    def start(self):
        program = os.environ["FREVO_CLIENT"]
        command = [
            program,
            "serve",
            self.folder / "share",
            "--listen",
            f"127.0.0.1:{self.port}",
            "--user",
            "ann",
            "--password-file",
            self.folder / "password",
            "--state-dir",
            self.folder / "state",
        ]
        with open(self.folder / "said", "a") as said:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

        def listens():
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return True
            return False

        until("the server listens", listens)

    def kill(self):
        self.process.kill()
        self.process.wait()


# The reader is a process of its own. Otherwise a program with open files on the mount could not
# start another program until the files were flushed.
WORKER = """
import os, sys, threading, time
here, said = sys.argv[1], sys.argv[2]
data = open(here + "/read", "rb").read()
counts, stop = [0, 0], threading.Event()

def writer():
    with open(here + "/log", "wb", buffering=0) as file:
        while not stop.is_set():
            file.write(b"%09d\\n" % counts[0])
            if counts[0] % 50 == 0:
                os.fsync(file.fileno())
            counts[0] += 1
            time.sleep(0.001)

def reader():
    while not stop.is_set():
        if open(here + "/read", "rb").read() != data:
            raise SystemExit("wrong bytes are read")
        counts[1] += 1

def guarded(work):
    try:
        work()
    except BaseException as e:
        os.write(2, repr(e).encode())
        os._exit(1)

threads = [threading.Thread(target=guarded, args=(work,)) for work in (writer, reader)]
for thread in threads:
    thread.start()
while not os.path.exists(said + ".stop"):
    with open(said + ".new", "w") as file:
        file.write("%d %d" % tuple(counts))
    os.replace(said + ".new", said)
    time.sleep(0.05)
stop.set()
for thread in threads:
    thread.join()
print(counts[0])
"""


def killed(ctx):
    """kill -9 of the server, four times, while a program reads and writes: a pause and no error."""
    own = Own(ctx)
    said = ctx.work / "counts"
    try:
        with mounted(ctx, "survivor", url=f"smb://ann@127.0.0.1:{own.port}/share", password="Passw0rd") as here:
            (here / "read").write_bytes(os.urandom(5_000_000))
            worker = subprocess.Popen(
                [sys.executable, "-c", WORKER, here, said], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )

            def counts():
                return [int(word) for word in said.read_text().split()]

            until("it works", lambda: said.exists() and min(counts()) > 0)
            for _ in range(4):
                time.sleep(0.7)
                own.kill()
                before = counts()
                time.sleep(0.3)
                own.start()

                def goes_on(before=before):
                    return all(now > then + 10 for now, then in zip(counts(), before, strict=True))

                until("it goes on", lambda goes_on=goes_on: worker.poll() is not None or goes_on())
            said.with_suffix(".stop").touch()
            output, errors = worker.communicate(timeout=PATIENCE)
            if worker.returncode:
                raise Failure(errors.strip()[-250:])
            wanted = b"".join(b"%09d\n" % at for at in range(int(output)))
            equal((own.folder / "share/log").read_bytes() == wanted, True, "all that was written is there")
    finally:
        own.kill()


def gone(process, seconds=5):
    """Fails unless `process` ends within `seconds`, without an answer from the server."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired as e:
        raise Failure(f"{process.args[0]} did not end within {seconds} s") from e


def reading(path):
    return subprocess.Popen(
        ["dd", f"if={path}", "of=/dev/null", "bs=64k", "skip=20"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def hung(ctx):
    """A server that does not answer: waiting programs can be killed, the share unmounted; later the mount works."""
    own = Own(ctx, "hung", 4461)
    url = f"smb://ann@127.0.0.1:{own.port}/share"
    data = os.urandom(3_000_000)
    mount = None
    try:
        mount = Mount(ctx, "patient", url=url, password="Passw0rd")
        here = mount.folder
        (here / "read").write_bytes(data)
        for signal_number in (signal.SIGKILL, signal.SIGTERM):
            stop(own.process)
            waiters = [
                reading(here / "read"),
                subprocess.Popen(["stat", here / "none"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL),
            ]
            time.sleep(0.5)
            for waiter in waiters:
                waiter.send_signal(signal_number)
                gone(waiter)
            own.process.send_signal(signal.SIGCONT)
            equal((here / "read").read_bytes() == data, True, "what is read afterwards")
            (here / "new").write_bytes(b"new")
            equal((own.folder / "share/new").read_bytes(), b"new", "what is written afterwards")
        writer = subprocess.Popen(
            [sys.executable, "-c", HANGS, here / "unsent"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        equal(writer.stdout.readline(), b"open\n", "the writer")
        stop(own.process)
        writer.stdin.write(b"\n")
        writer.stdin.flush()
        equal(writer.stdout.readline(), b"written\n", "the writer")
        writer.kill()
        gone(writer)
        mount.process.terminate()
        # Do not look at the folder itself: that would wait for the hung server and keep the mount
        # in use.
        until("it is unmounted", lambda: str(here) not in Path("/proc/self/mounts").read_text(), 5)
        # The mount still tries to send written data. A second signal makes it give up.
        time.sleep(0.5)
        equal(mount.process.poll(), None, "it tries to send what was written")
        mount.process.terminate()
        gone(mount.process)
        equal((own.folder / "share/unsent").read_bytes(), b"", "what the server has")
        said = mount.said.read_text()
        equal(mount.process.returncode, 130, "it was interrupted")
        if "4 bytes of written data could not be saved" not in said:
            raise Failure(f"it does not say what is lost: {said[-250:]!r}")
    finally:
        own.process.send_signal(signal.SIGCONT)
        own.kill()
        if mount:
            mount.abandon()


def stop(process):
    """Stops a server. After the signal its threads go on until one of them has run and stopped them all."""
    process.send_signal(signal.SIGSTOP)

    def is_stopped():
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()]
        return all(state == "T" for state in states)

    tasks = Path(f"/proc/{process.pid}/task")
    until("the server is stopped", is_stopped, 30)


HANGS = """
import sys
with open(sys.argv[1], "wb", buffering=0) as file:
    print("open", flush=True)
    sys.stdin.readline()
    file.write(b"lost")
    print("written", flush=True)
    sys.stdin.readline()
"""


def cancelled(ctx):
    """A READ hangs because the server's disk does not answer: the reading program is killed, the READ cancelled."""
    disk = ctx.work / "disk"
    (disk / "slow").mkdir(parents=True)
    own = Own(ctx, "slow", 4462)
    share = own.folder / "share"
    bindfs = subprocess.Popen(
        ["bindfs", "-f", disk, share], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until("the disk is there", lambda: os.path.ismount(share))
        own.kill()
        own.start()
        data = os.urandom(3_000_000)
        (disk / "slow/read").write_bytes(data)
        with mounted(ctx, "canceller", url=f"smb://ann@127.0.0.1:{own.port}/share", password="Passw0rd") as here:
            for round in range(3):
                # Read at a new position in each round: no cache has it.
                at = 700_000 * (round + 1)
                with open(here / "slow/read", "rb", buffering=0) as file:
                    file.read(4096)
                    bindfs.send_signal(signal.SIGSTOP)
                    waiter = subprocess.Popen([sys.executable, "-c", f"import os; os.pread(0, 4096, {at})"], stdin=file)
                    # After this time the server has sent an interim response for the READ.
                    time.sleep(1.5)
                    equal(waiter.poll(), None, "the reader waits")
                    waiter.kill()
                    gone(waiter)
                    bindfs.send_signal(signal.SIGCONT)
                    equal(os.pread(file.fileno(), 4096, at), data[at : at + 4096], "the same file goes on")
                (here / f"slow/new{round}").write_bytes(b"new")
                equal((disk / f"slow/new{round}").read_bytes(), b"new", "and the mount")
    finally:
        bindfs.send_signal(signal.SIGCONT)
        own.kill()
        subprocess.run(["umount", "-l", share], check=False)
        bindfs.wait()
