"""Folders on other file systems, and attacks there. Where a file system is not to be had, its rows are left out."""

import contextlib
import itertools
import pathlib
import shutil
import signal
import struct
import subprocess
import threading
import time

from client import (
    CLOSE,
    CREATE,
    QUERY_DIRECTORY,
    SET_INFO,
    TREE_CONNECT,
    close,
    create,
    query_directory,
    rename,
    tree_connect,
)

from attacks import DIRECTORY, LIST, Attack, keep_busy

ALL, MAKE = 0x1F01FF, 2
DELETE_ON_CLOSE, RESTART = 0x1000, 1
#: The commands that make the file systems.
MAKERS = {"xfs": ["mkfs.xfs", "-q", "-f"], "btrfs": ["mkfs.btrfs", "-q", "-f"]}
IMAGE_BYTES = 4 << 30
#: The name of the share behind FUSE.
SLOW = "slow"


class Absent(Exception):
    """The machine has no such file system."""


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@contextlib.contextmanager
def folder(directory, attack):
    """Gives the folder of an attack, on the file system that it needs."""
    plain = directory / ("files" if attack.files else attack.name)
    plain.mkdir(parents=True, exist_ok=True)
    if not attack.file_system:
        yield plain
        return
    place = directory / "mounted"
    place.mkdir(exist_ok=True)
    mount = through_fuse(plain, place, attack) if attack.file_system == "fuse" else on_image(plain, place, attack)
    with mount as shared:
        try:
            yield shared
        finally:
            # A server that has ended may have files open for a moment.
            run("umount", "--lazy", place)


@contextlib.contextmanager
def on_image(plain, place, attack):
    """Mounts a new file system on an image in `plain`, and gives its folder."""
    kind = attack.file_system
    kinds = pathlib.Path("/proc/filesystems").read_text().split()
    if kind not in kinds or not shutil.which(MAKERS[kind][0]) or not pathlib.Path("/dev/loop-control").exists():
        raise Absent(f"this machine has no {kind}, {MAKERS[kind][0]} or loop device")
    image = plain / "image"
    image.unlink(missing_ok=True)
    with image.open("wb") as file:
        file.truncate(IMAGE_BYTES)
    try:
        run(*MAKERS[kind], image)
        run("mount", "-o", "loop", image, place)
    except subprocess.CalledProcessError as fault:
        raise Absent(str(fault)) from fault
    yield place
    image.unlink()


@contextlib.contextmanager
def through_fuse(plain, place, attack):
    """Mounts a folder below `plain` through a process, for a further share. Gives `plain`, whose share is as quick
    as ever."""
    if not shutil.which("bindfs") or not pathlib.Path("/dev/fuse").exists():
        raise Absent("this machine has no bindfs or FUSE")
    behind = plain / "behind"
    behind.mkdir(exist_ok=True)
    attack.process = subprocess.Popen(["bindfs", "-f", behind, place], stderr=subprocess.DEVNULL)
    attack.share = f'[[share]]\nname = "{SLOW}"\npath = "{place}"'
    for _ in range(100):
        if place.is_mount():
            break
        time.sleep(0.05)
    try:
        yield plain
    finally:
        attack.process.kill()
        attack.process.wait()


class Elsewhere(Attack):
    """Names made, renamed, listed and deleted, on another file system."""

    connections, count = (128,), 20_000

    def prepare(self, data):
        folder = data / "many"
        folder.mkdir(exist_ok=True)
        for number in range(self.count):
            (folder / f"file-{number:05}").touch()

    def run(self, clients, end):
        names, opened, own = itertools.count(), {}, {}
        folders = {
            client: client.open("many", access=LIST, options=DIRECTORY) for client in clients[: len(clients) // 2]
        }

        def again(client, number):
            if client in folders:
                return QUERY_DIRECTORY, query_directory(folders[client], flags=RESTART), 1
            if client not in opened:
                own[client] = f"many\\made-{next(names)}"
                return CREATE, create(own[client], access=ALL, disposition=MAKE, options=DELETE_ON_CLOSE), 1
            if not own[client].endswith("-moved"):
                own[client] += "-moved"
                return SET_INFO, rename(opened[client], own[client]), 1
            return CLOSE, close(opened.pop(client)), 1

        def note(client, status):
            if status == 0 and int.from_bytes(client.last[12:14], "little") == CREATE:
                opened[client] = client.last[128:144]

        return f"{keep_busy(clients, end, again, note)} answers"


class Stopped(Elsewhere):
    """The same in a share behind FUSE, whose process stops for a while."""

    name, file_system = "names-fuse", "fuse"
    text = "files made, renamed, deleted and listed in a share behind FUSE, whose process stops for 2 s"

    def prepare(self, data):
        super().prepare(data / "behind")

    def run(self, clients, end):
        for client in clients:
            _, message = client.call(TREE_CONNECT, tree_connect(rf"\\127.0.0.1\{SLOW}"), tree_id=0)
            client.tree_id = struct.unpack_from("<I", message, 36)[0]
        threading.Timer(1, self.process.send_signal, [signal.SIGSTOP]).start()
        threading.Timer(3, self.process.send_signal, [signal.SIGCONT]).start()
        return super().run(clients, end)


def on(kind, text):
    """Returns these attacks on one file system."""
    attributes = {
        "name": f"names-{kind}",
        "file_system": kind,
        "text": f"files made, renamed and deleted in a folder of 20,000, and its listings, on {text}",
    }
    return type(f"On{kind.title()}", (Elsewhere,), attributes)()


ATTACKS = [on("xfs", "XFS"), on("btrfs", "Btrfs"), Stopped()]
