"""The server that is attacked, the probes beside it, and their figures."""

import ctypes
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

from client import PASSWORDS
from ntlm import HASHES

HERE = pathlib.Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")
#: The names of the server's threads of cores.
CORE = re.compile(r"frevo-\d+\n")
LIBC = ctypes.CDLL(None)


def with_parent(niceness=0):
    """Returns a function that has a child end with this process."""

    def prepare():
        LIBC.prctl(1, signal.SIGKILL)
        if niceness:
            os.setpriority(os.PRIO_PROCESS, 0, niceness)

    return prepare


class Figures:
    """The waiting times of one probe within a phase, in milliseconds."""

    def __init__(self, rows, begin, end):
        rows = [row for row in rows if row[0] + row[1] >= begin and row[0] <= end]
        self.times = sorted(row[1] * 1000 for row in rows if row[2] == "ok")
        self.faults = [row[2] for row in rows if row[2] != "ok"]

    def at(self, part):
        return self.times[min(len(self.times) - 1, int(len(self.times) * part))] if self.times else float("nan")

    def __str__(self):
        if not self.times:
            return "none: " + (self.faults[0] if self.faults else "no answer")
        faults = f", {len(self.faults)} failed" if self.faults else ""
        return f"{self.at(0.5):.1f} / {self.at(0.99):.1f} / {self.times[-1]:.0f}{faults}"


def write_accounts(path, count, groups):
    """Writes an account file with users beside ann and bob, who cannot log on, and the groups of ann."""
    hidden, end = "X" * 32, "[U          ]:LCT-65A1B2C3:"
    lines = [f"user{number:05}:{number}:{hidden}:{hidden}:{end}\n" for number in range(count)]
    if groups:
        lines.append(f"ann:{count}:{hidden}:{HASHES['ann'].hex().upper()}:{end}GROUPS-{','.join(groups)}:\n")
    path.write_text("".join(lines))
    path.chmod(0o600)


class Server:
    """A server with default settings in a directory of its own, with the accounts ann and bob."""

    def __init__(
        self,
        program,
        directory,
        port,
        data=None,
        descriptors=20000,
        settings="",
        share="",
        limits="",
        accounts=0,
        groups=(),
    ):
        self.directory, self.port = directory, port
        shutil.rmtree(directory, ignore_errors=True)
        (directory / "state").mkdir(parents=True, mode=0o700)
        data = data or directory / "data"
        data.mkdir(parents=True, exist_ok=True)
        self.data = data
        (data / "probe.bin").write_bytes(os.urandom(65536))
        if accounts or groups:
            write_accounts(directory / "state" / "users", accounts, groups)
        users, limits = "", limits.replace("STATE", str(directory / "state"))
        for user, password in PASSWORDS.items():
            if groups and user == "ann":
                continue
            file = directory / f"{user}.password"
            file.write_text(password + "\n")
            file.chmod(0o600)
            users += f'[[user]]\nname = "{user}"\npassword_file = "{file}"\n'
        config = directory / "frevo.toml"
        config.write_text(
            f'[server]\nname = "FAIR"\nlisten = ["127.0.0.1:{port}"]\nstate_dir = "{directory}/state"\n{settings}\n'
            f'{limits}\n[[share]]\nname = "share"\npath = "{data}"\n{share}\n{users}'
        )
        config.chmod(0o600)
        self.log = directory / "log"

        def prepare():
            with_parent()()
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

        with self.log.open("w") as log:
            command = [program, "serve", "--config", config]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=prepare)
        self.await_port()
        self.probes, self.samples, self.cores, self.runs = {}, [], [], True
        threading.Thread(target=self.watch, daemon=True).start()

    def await_port(self):
        for _ in range(200):
            try:
                return socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit("the server ended: " + self.log.read_text()[-2000:]) from None
                time.sleep(0.05)
        raise SystemExit("the server does not listen")

    def sample(self):
        """Returns time, resident MiB, descriptors, processor seconds, and those for which the mean core waited for a
        processor that others had."""
        proc = pathlib.Path("/proc", str(self.process.pid))
        fields = (proc / "stat").read_text().rsplit(")", 1)[1].split()
        resident = int(fields[21]) * resource.getpagesize() / (1 << 20)
        worked = (int(fields[11]) + int(fields[12])) / TICKS
        return time.time(), resident, len(os.listdir(proc / "fd")), worked, self.waited(proc)

    def waited(self, proc):
        if not self.cores:
            tasks = (proc / "task").iterdir()
            self.cores = [task for task in tasks if CORE.fullmatch((task / "comm").read_text())]
        waits = [int((task / "schedstat").read_text().split()[1]) / 1e9 for task in self.cores]
        return sum(waits) / max(len(waits), 1)

    def watch(self):
        while self.runs:
            try:
                self.samples.append(self.sample())
            except OSError:
                return
            time.sleep(0.25)

    def start_probes(self, kinds=("bob", "new")):
        for kind in kinds:
            out = self.directory / f"{kind}.jsonl"
            command = [sys.executable, HERE / "probe.py", kind, str(self.port), out, self.data]
            self.probes[kind] = subprocess.Popen(command, preexec_fn=with_parent(-10))

    def rows(self, kind):
        """Returns what a probe has noted."""
        lines = (self.directory / f"{kind}.jsonl").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def phase(self, begin, end):
        """Returns the figures between two times: of the probes, and of the process."""
        figures = {kind: Figures(self.rows(kind), begin, end) for kind in self.probes}
        within = [sample for sample in self.samples if begin <= sample[0] <= end] or self.samples[-1:]
        figures["resident"] = (max(sample[1] for sample in within), within[-1][1])
        figures["descriptors"] = (max(sample[2] for sample in within), within[-1][2])
        took = max(within[-1][0] - within[0][0], 0.01)
        figures["processor"] = 100 * (within[-1][3] - within[0][3]) / took
        figures["waits"] = 100 * (within[-1][4] - within[0][4]) / took
        return figures

    def rest(self, seconds):
        """Waits, and returns the figures of the time."""
        begin = time.time()
        time.sleep(seconds)
        return self.phase(begin, time.time())

    def warnings(self):
        return [line for line in self.log.read_text().splitlines() if " WARN " in line or " ERROR " in line]

    def stop(self):
        self.runs = False
        for probe in self.probes.values():
            probe.kill()
            probe.wait()
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
