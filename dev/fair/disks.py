"""Folders on other file systems, and attacks there. Where a file system is not to be had, its rows are left out."""

import contextlib
import itertools
import pathlib
import shutil
import signal
import subprocess
import threading
import time

from client import (
    CLOSE,
    CREATE,
    FLUSH,
    QUERY_DIRECTORY,
    READ,
    SET_INFO,
    WRITE,
    close,
    create,
    query_directory,
    read,
    rename,
    write,
)

from attacks import DIRECTORY, LIST, Attack, keep_busy

ALL, OPEN, MAKE = 0x1F01FF, 1, 2
DELETE_ON_CLOSE, RESTART = 0x1000, 1
#: The commands that make the file systems. None gives the blocks of the image back, as that takes minutes on a disk
#: that discards.
MAKERS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard"],
    "ext4-quotas": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard", "-O", "quota"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}
#: The options of their mounts, beside that for an image.
OPTIONS = {"ext4-quotas": ",usrquota"}
IMAGE_BYTES = 4 << 30
#: Attempts to mount one.
MOUNTS = 6
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
    if attack.file_system == "slow":
        with on_slow_image(plain, place, attack) as shared:
            yield shared
        return
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
    is_known = kind.split("-")[0] in pathlib.Path("/proc/filesystems").read_text().split()
    if not is_known or not shutil.which(MAKERS[kind][0]) or not pathlib.Path("/dev/loop-control").exists():
        raise Absent(f"this machine has no {kind}, {MAKERS[kind][0]} or loop device")
    # The image stays for the next attack, since to delete it takes as long.
    image = plain.parent / f"{kind}.image"
    try:
        make_image(image, kind)
        mount_image(image, place, OPTIONS.get(kind, ""))
    except subprocess.CalledProcessError as fault:
        raise Absent(str(fault)) from fault
    yield place


def make_image(image, kind):
    """Makes a new file system in a file, which may be that of an earlier one."""
    with image.open("ab") as file:
        file.truncate(IMAGE_BYTES)
    run(*MAKERS[kind], image)


def mount_image(image, place, options=""):
    # A loop device that an earlier mount has just given back may still be in use for a moment.
    for attempt in range(MOUNTS):
        try:
            return run("mount", "-o", "loop" + options, image, place)
        except subprocess.CalledProcessError:
            if attempt + 1 == MOUNTS:
                raise
            time.sleep(0.5)


@contextlib.contextmanager
def through_fuse(plain, place, attack):
    """Mounts a folder below `plain` through a process, for a further share. Gives `plain`, whose share is as quick
    as ever."""
    if not shutil.which("bindfs") or not pathlib.Path("/dev/fuse").exists():
        raise Absent("this machine has no bindfs or FUSE")
    behind = plain / "behind"
    behind.mkdir(exist_ok=True)
    attack.process = bound(behind, place)
    attack.share = f'[[share]]\nname = "{SLOW}"\npath = "{place}"'
    try:
        yield plain
    finally:
        attack.process.kill()
        attack.process.wait()


def bound(behind, place):
    """Starts a process through which a folder can be reached at another place."""
    process = subprocess.Popen(["bindfs", "-f", behind, place], stderr=subprocess.DEVNULL)
    for _ in range(100):
        if place.is_mount():
            break
        time.sleep(0.05)
    return process


@contextlib.contextmanager
def on_slow_image(plain, place, attack):
    """Mounts ext4 on an image that a process of FUSE gives, for a further share: when the process stops, the disk does.
    Gives `plain`, whose disk is as quick as ever."""
    if not shutil.which("bindfs") or not pathlib.Path("/dev/fuse").exists():
        raise Absent("this machine has no bindfs or FUSE")
    behind, disk = plain / "behind", plain / "disk"
    for folder in (behind, disk):
        folder.mkdir(exist_ok=True)
    image = behind / "image"
    attack.share = f'[[share]]\nname = "{SLOW}"\npath = "{place}"'
    attack.process = None
    try:
        make_image(image, "ext4")
        mount_image(image, place)
        attack.furnish(place)
        run("umount", place)
        attack.process = bound(behind, disk)
        # Nothing of the new mount is in memory.
        mount_image(disk / "image", place)
        yield plain
    finally:
        if attack.process:
            run("umount", "--lazy", place)
            run("umount", "--lazy", disk)
            attack.process.wait()


class Elsewhere(Attack):
    """Names made, renamed, listed and deleted, on another file system."""

    count = 20_000

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
            client.tree_id = client.connect_tree(SLOW)
        threading.Timer(1, self.process.send_signal, [signal.SIGSTOP]).start()
        threading.Timer(3, self.process.send_signal, [signal.SIGCONT]).start()
        return super().run(clients, end)


class SlowDisk(Attack):
    """Files of a disk whose calls take seconds, while others use another disk."""

    name, file_system, seconds = "slow-disk", "slow", 8
    text = (
        "CREATE, READ, WRITE, FLUSH and CLOSE of 32,000 files of which nothing is in memory, and listings, in a share "
        "on ext4 whose disk stops for 2 s again and again; bob's share is on another disk"
    )
    folders, each = 64, 500
    #: Seconds in which the disk stands still, and goes on.
    stands, goes = 2, 0.1

    def furnish(self, place):
        for folder in range(self.folders):
            (place / f"d{folder}").mkdir()
            for number in range(self.each):
                (place / f"d{folder}" / f"f{number}").write_bytes(bytes(4096))

    def stop_again_and_again(self, end):
        while time.time() < end:
            self.process.send_signal(signal.SIGSTOP)
            time.sleep(self.stands)
            self.process.send_signal(signal.SIGCONT)
            time.sleep(self.goes)

    def run(self, clients, end):
        opened, names = {}, itertools.count()
        for client in clients:
            client.tree_id = client.connect_tree(SLOW)
        stopping = threading.Thread(target=self.stop_again_and_again, args=(end,))
        stopping.start()

        def again(client, number):
            file, step = opened.get(client), number % 5
            if not file:
                folder, number = divmod(next(names) * 7919 % (self.folders * self.each), self.each)
                is_list = number % 20 == 0
                path, options = (f"d{folder}", DIRECTORY) if is_list else (f"d{folder}\\f{number}", 0)
                return CREATE, create(path, access=LIST if is_list else ALL, disposition=OPEN, options=options), 1
            if step == 1:
                return READ, read(file, 0, 4096), 1
            if step == 2:
                return QUERY_DIRECTORY, query_directory(file), 1
            if step == 3:
                return WRITE, write(file, 0, bytes(4096)), 1
            if step == 4:
                return FLUSH, close(file), 1
            return CLOSE, close(opened.pop(client)), 1

        def note(client, status):
            if status == 0 and int.from_bytes(client.last[12:14], "little") == CREATE:
                opened[client] = client.last[128:144]

        done = keep_busy(clients, end, again, note)
        stopping.join()
        return f"{done} answers"


def on(kind, text):
    """Returns these attacks on one file system."""
    attributes = {
        "name": f"names-{kind}",
        "file_system": kind,
        "text": f"files made, renamed and deleted in a folder of 20,000, and its listings, on {text}",
    }
    return type(f"On{kind.title()}", (Elsewhere,), attributes)()


ATTACKS = [on("xfs", "XFS"), on("btrfs", "Btrfs"), Stopped(), SlowDisk()]
