"""The server under attack, its measurements, and the bystanders; prints a line for each attack."""

import contextlib
import os
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path

import raw

from .link import Link, quietly

MIB = 1 << 20


class Succeeded(Exception):
    """The attack had an effect that it must not have."""


def demand(holds, text):
    if not holds:
        raise Succeeded(text)


class Unfit(Exception):
    """The machine is too busy for the attack or for meaningful measurements."""


class Figures(list):
    """The measurements for the line of an attack; calling it adds one."""

    def __call__(self, text):
        self.append(text)


@contextlib.contextmanager
def attack(name, wanted=()):
    """Prints `ok|FAIL|skip NAME SECONDS FIGURES` for what its body does."""
    began, figures = time.monotonic(), Figures()
    try:
        yield figures
    except Unfit as e:
        report("skip", name, began, figures, str(e))
    except Exception as e:
        if not isinstance(e, Succeeded):
            traceback.print_exc(file=sys.stderr)
        report("FAIL", name, began, figures, str(e) if isinstance(e, Succeeded) else f"{type(e).__name__}: {e}")
    else:
        report("ok", name, began, figures)


def report(result, name, began, figures, reason=None):
    """Prints the line of an attack; `began` is when it started, `reason` why it failed or was skipped."""
    why = [] if reason is None else [" ".join(reason.split()), "|"]
    print(result, name, f"{time.monotonic() - began:.2f}", *why, "; ".join(figures), flush=True)


class Slowest:
    """The longest of the blocks that it times: `with slowest: ...`. Its text is in milliseconds."""

    def __init__(self):
        self.seconds = 0.0

    def __enter__(self):
        self.began = time.monotonic()

    def __exit__(self, *_):
        self.seconds = max(self.seconds, time.monotonic() - self.began)

    def __str__(self):
        return f"{self.seconds * 1e3:.0f} ms"


def crowd(scene, count, begin, network, timeout=10):
    """Logs on from `count` addresses of `network` and runs the generator `begin` on each link.

    Stops at the first refused logon; a refusal within `begin` ends only that link's part.
    Returns the links and the number of steps that all generators took.
    """
    links, steps = [], 0
    for number in range(count):
        link = quietly(scene.member, f"{network}.{number + 1}", timeout=timeout)
        if not link:
            break
        links.append(link)
        with contextlib.suppress(OSError, raw.Refused):
            for _ in begin(link):
                steps += 1
    return links, steps


class Bystander:
    """A client in a process of its own (`bystander`)."""

    def __init__(self, scene, what, source, pause):
        self.lines, self.lost = [], None
        self.child = subprocess.Popen(
            [
                sys.executable,
                Path(__file__).with_name("bystander.py"),
                what,
                scene.target[0],
                str(scene.target[1]),
                source or "",
                str(pause),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        for line in self.child.stdout:
            kind, began, seconds, *why = line.split()
            if kind == "lost":
                self.lost = " ".join(why)
            else:
                self.lines.append((kind, float(began), float(seconds), " ".join(why)))

    def stop(self):
        """Kills the process; its unfinished request is not counted."""
        self.child.kill()
        self.child.wait()
        self.reader.join(5)

    def since(self, kind, began, until=None):
        """Returns the latencies of requests that ended after `began` and began before `until`."""
        return [s for k, b, s, _ in self.lines if k == kind and b + s >= began and (until is None or b < until)]

    def failures(self, began):
        return [(s, why) for k, b, s, why in self.lines if k == "failed" and b + s >= began]


def percentile(values, part):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * part))] if values else float("inf")


class Scene:
    """The server: its address, its process, its accounts."""

    def __init__(self, directory):
        env = os.environ
        self.target = (env["SMB_ADDR"], int(env["SMB_PORT"]))
        self.user, self.user2, self.password = env["SMB_USER"], env["SMB_USER2"], env["SMB_PASS"]
        self.share, self.share2, self.directory = env["SMB_SHARE"], env["SMB_SHARE2"], Path(directory)
        self.pid, self.used = self.find_process(), 0

    def find_process(self):
        wanted = str(self.directory / "frevo.toml").encode()
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                with contextlib.suppress(OSError):
                    words = (entry / "cmdline").read_bytes().split(b"\0")
                    if b"serve" in words and wanted in words:
                        return int(entry.name)
        raise SystemExit("the server's process was not found")

    def network(self):
        """Returns an unused network of 256 addresses, such as 198.19.7."""
        self.used += 1
        return f"198.19.{self.used}"

    def link(self, source=None, **more):
        return Link(self.target, source, **more)

    def member(self, source=None, user=None, share=None, **more):
        """Returns a link with a session and a connected share."""
        link = Link(self.target, source, **more).log_on_as(user or self.user, self.password)
        link.connect_tree(share or self.share).must()
        return link

    # Measurements of the server's process.

    def resident(self):
        """Returns the resident memory, VmRSS, in bytes."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise SystemExit("the server has ended")

    def folder(self, name):
        """Makes a directory of the share that every user may write to; returns its path on the host."""
        path = self.directory / "share" / name
        os.makedirs(path, exist_ok=True)
        os.chmod(path, 0o777)
        return path

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def log(self):
        return (self.directory / "log.frevo").read_text(errors="replace")

    @contextlib.contextmanager
    def siege(self, honest="198.19.250.1", newcomer="198.19.251.1"):
        """Runs bystanders and measures memory while an attack runs."""
        siege = Siege(self, honest, newcomer)
        try:
            yield siege
        finally:
            siege.stop()


class Siege:
    """Latencies of bystanders and memory of the server since the attack began."""

    def __init__(self, scene, honest, newcomer):
        self.scene, self.peak, self.over = scene, 0, threading.Event()
        self.honest = Bystander(scene, "honest", honest, 0.01)
        self.newcomer = Bystander(scene, "newcomer", newcomer, 0.2)
        time.sleep(1.2)
        self.before, self.began = scene.resident(), time.monotonic()
        self.calm = percentile(self.honest.since("echo", 0), 0.99)
        self.calm_make = percentile(self.honest.since("make", 0), 0.99)
        self.watcher = threading.Thread(target=self.watch, daemon=True)
        self.watcher.start()

    def watch(self):
        while not self.over.wait(0.05):
            self.peak = max(self.peak, self.scene.resident())

    def stop(self):
        self.over.set()
        self.watcher.join()
        self.honest.stop()
        self.newcomer.stop()

    def others_wait(self, say, most=0.25):
        """Demands that every bystander's ECHO took at most `most` seconds, create and delete twice that."""
        time.sleep(0.3)
        echo, make = self.honest.since("echo", self.began), self.honest.since("make", self.began)
        demand(not self.honest.lost, f"the honest client was disconnected: {self.honest.lost}")
        last = max((b + s for _, b, s, _ in self.honest.lines), default=self.began)
        stuck = time.monotonic() - last
        demand(stuck < most + 0.5, f"the honest client has waited for {stuck:.1f} s and still waits")
        say(
            f"others' ECHO at most {max(echo, default=0) * 1e3:.0f} ms,"
            f" create and delete {max(make, default=0) * 1e3:.0f} ms"
        )
        demand(max(echo, default=0) <= most, f"another client's ECHO waited {max(echo, default=0) * 1e3:.0f} ms")
        demand(
            max(make, default=0) <= most * 2,
            f"another client's create and delete waited {max(make, default=0) * 1e3:.0f} ms",
        )

    def newcomers_served(self, say, most=1.0):
        """Demands that every logon of the newcomer succeeded within `most` seconds."""
        failures, times = self.newcomer.failures(self.began), self.newcomer.since("logon", self.began)
        say(f"newcomers served in at most {max(times, default=float('nan')) * 1e3:.0f} ms, {len(failures)} refused")
        demand(
            not failures, f"{len(failures)} newcomers were refused, the first one with {failures and failures[0][1]}"
        )
        demand(times, "no new client was served")
        demand(max(times, default=0) <= most, f"a new client waited {max(times, default=0) * 1e3:.0f} ms")

    def memory_stays(self, say, most=160 * MIB, growth=None):
        say(f"resident {self.before // MIB} MiB before, {self.peak // MIB} MiB at most")
        demand(self.peak <= most, f"the process grew to {self.peak // MIB} MiB")
        if growth is not None:
            demand(self.peak - self.before <= growth, f"the process grew by {(self.peak - self.before) // MIB} MiB")

    def judge_crowd(self, say, links, text):
        """Demands that newcomers are served while `links` stand, and that memory stays and comes back after them."""
        time.sleep(1)
        say(text)
        self.newcomers_served(say)
        self.memory_stays(say)
        for link in links:
            link.close()
        self.memory_returns(say)

    def memory_returns(self, say, within=5.0, margin=16 * MIB):
        """Demands that resident memory returns to its old size; call it after the end of the attack."""
        began = time.monotonic()
        while (now := self.scene.resident()) > self.before + margin and time.monotonic() - began < within:
            time.sleep(0.1)
        say(f"{now // MIB} MiB {time.monotonic() - began:.1f} s after")
        demand(
            now <= self.before + margin,
            f"{within:.0f} s after its end the attack still holds {(now - self.before) // MIB} MiB",
        )
