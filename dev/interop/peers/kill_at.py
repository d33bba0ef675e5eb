"""kill_at.py STATE N one|all COMMAND...: kill a command before its N-th system call that can change anything.

Such calls of the command, its threads and its children are counted together, in the order in which they come: a
change of a file below the directory STATE, and data for a port of a domain controller that takes changes. A call
is not made when its process is killed before it. Between two of them nothing changes (memory that is mapped from a
file does, up to the next msync or fdatasync), so that a kill at any other moment leaves what a kill before the next
one leaves. `one` kills the process that makes the call, `all` every process. With N = 0 nothing is killed; each call
is printed, with the name of its process.

The status is 137 if it was killed; 3 means that it ended well before call N. Otherwise it is the command's, or 1
where the command fails with one of these before call N. x86-64 only.
"""

import contextlib
import ctypes
import os
import signal
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
CONT, SETOPTIONS, GETEVENTMSG, SEIZE, GETREGS = 7, 0x4200, 0x4201, 0x4206, 12
# PTRACE_O_TRACEFORK, VFORK, CLONE, EXEC, TRACESECCOMP, EXITKILL.
OPTIONS = 0x2 | 0x4 | 0x8 | 0x10 | 0x80 | 0x100000
EVENT_SECCOMP, EVENT_STOP = 7, 128

# Calls by number, and by what names the file.
BY_DESCRIPTOR = {1: "write", 18: "pwrite64", 20: "writev", 75: "fdatasync", 77: "ftruncate"}
BY_DESCRIPTOR |= {91: "fchmod", 93: "fchown", 44: "sendto", 46: "sendmsg", 307: "sendmmsg", 285: "fallocate"}
BY_PATH = {2: "open", 76: "truncate", 82: "rename", 83: "mkdir", 84: "rmdir", 86: "link", 87: "unlink", 88: "symlink"}
BY_PATH |= {90: "chmod", 92: "chown"}
AT_PATH = {257: "openat", 258: "mkdirat", 260: "fchownat", 263: "unlinkat", 264: "renameat", 268: "fchmodat"}
AT_PATH |= {316: "renameat2", 280: "utimensat"}
MSYNC, CONNECT = 26, 42
NAMES = BY_DESCRIPTOR | BY_PATH | AT_PATH | {MSYNC: "msync", CONNECT: "connect"}
MAKES = {"mkdir", "mkdirat", "symlink", "link"}
# RPC, LDAP, SMB, passwords, the global catalogue. Questions to the KDC (88) and DNS (53) change nothing.
PORTS = {135, 139, 389, 445, 464, 636, 3268}


def ptrace(request, pid, address=None, data=None):
    if LIBC.ptrace(request, pid, address, data) < 0:
        raise OSError(ctypes.get_errno(), "ptrace")


def start(command):
    """Start the command, stopped: it stops at each of the calls above, by a seccomp filter."""
    rules = [struct.pack("HBBI", 0x20, 0, 0, 0)]
    for number in NAMES:
        rules += [struct.pack("HBBI", 0x15, 0, 1, number), struct.pack("HBBI", 0x6, 0, 0, 0x7FF00000)]
    rules.append(struct.pack("HBBI", 0x6, 0, 0, 0x7FFF0000))
    filters = ctypes.create_string_buffer(b"".join(rules))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(rules), ctypes.addressof(filters)))
    child = os.fork()
    if child == 0:
        os.kill(os.getpid(), signal.SIGSTOP)
        if LIBC.prctl(22, 2, program, 0, 0):  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
            os._exit(126)
        os.execvp(command[0], command)
    os.waitpid(child, os.WUNTRACED)
    ptrace(SEIZE, child, None, OPTIONS)
    os.kill(child, signal.SIGCONT)
    return child


class Call:
    """A system call that a stopped process is about to make."""

    def __init__(self, pid, ports):
        self.pid, self.ports = pid, ports
        regs = ctypes.create_string_buffer(27 * 8)
        ptrace(GETREGS, pid, None, regs)
        words = struct.unpack("27Q", regs.raw)
        self.number = words[15]
        self.args = [words[i] for i in (14, 13, 12, 7, 9, 8)]

    def memory(self, address, length):
        with open(f"/proc/{self.pid}/mem", "rb", 0) as memory:
            memory.seek(address)
            return memory.read(length)

    def path(self, address):
        # A path may end at the last page of a mapping.
        data = b""
        while b"\0" not in data and len(data) < 4096:
            data += self.memory(address + len(data), 4096 - (address + len(data)) % 4096)
        return os.fsdecode(data.split(b"\0")[0])

    def link(self, what):
        try:
            return os.readlink(f"/proc/{self.pid}/{what}")
        except OSError:
            return ""

    def connected(self):
        """Note the port to which a socket is connected."""
        family, port = struct.unpack("=H", self.memory(self.args[1], 2))[0], 0
        if family in (2, 10):
            port = struct.unpack("!H", self.memory(self.args[1] + 2, 2))[0]
        self.ports[self.link(f"fd/{self.args[0]}")] = port

    def changes(self, state):
        """What the call changes, or None."""
        if self.number in BY_DESCRIPTOR:
            target = self.link(f"fd/{self.args[0] & 0xFFFFFFFF}")
            if target.startswith("socket:"):
                return f"port {self.ports[target]}" if self.ports.get(target) in PORTS else None
            return target if target.startswith(state) else None
        if self.number == MSYNC:
            return self.mapped(state)
        at = self.number in AT_PATH
        path = self.path(self.args[1 if at else 0])
        if at and not path.startswith("/"):
            base = ctypes.c_int(self.args[0] & 0xFFFFFFFF).value
            path = os.path.join(self.link("cwd" if base == -100 else f"fd/{base}"), path)
        return path if path.startswith(state) and self.can_succeed(path, self.args[2 if at else 1]) else None

    def can_succeed(self, path, flags):
        """False for a call that only reads, or fails: a folder that is there already, a file that is not."""
        name, there = NAMES[self.number], os.path.lexists(path)
        if name in ("open", "openat"):
            return bool(flags & os.O_TRUNC if there else flags & os.O_CREAT)
        return not there if name in MAKES else there

    def mapped(self, state):
        with open(f"/proc/{self.pid}/maps", encoding="utf-8") as maps:
            for line in maps:
                fields = line.split()
                first, last = (int(part, 16) for part in fields[0].split("-"))
                if first <= self.args[0] < last:
                    return fields[5] if len(fields) > 5 and fields[5].startswith(state) else None
        return None


def follow(child, state, wanted, everyone):
    """Let the processes run until all have ended; returns how many calls there were, and the status."""
    alive, ports, count, status = {child}, {}, 0, 0
    while alive:
        pid, how = os.waitpid(-1, 0x40000000)  # __WALL
        if os.WIFEXITED(how) or os.WIFSIGNALED(how):
            alive.discard(pid)
            if pid == child:
                status = os.waitstatus_to_exitcode(how)
            continue
        alive.add(pid)
        event, stopped_by = how >> 16, os.WSTOPSIG(how)
        deliver = 0 if event or stopped_by == signal.SIGTRAP else stopped_by
        if event == EVENT_SECCOMP:
            call = Call(pid, ports)
            if call.number == CONNECT:
                call.connected()
            elif changed := call.changes(state):
                count += 1
                if wanted == 0:
                    with open(f"/proc/{pid}/comm", encoding="utf-8") as name:
                        print(count, name.read().strip(), NAMES[call.number], changed, flush=True)
                if count == wanted:
                    for victim in sorted(alive) if everyone else [pid]:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(victim, signal.SIGKILL)
        # A process that was killed does not go on.
        with contextlib.suppress(OSError):
            ptrace(CONT, pid, None, deliver)
    return count, status


def main():
    state, wanted, mode, command = os.path.realpath(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]
    count, status = follow(start(command), state, wanted, mode == "all")
    if wanted and count >= wanted:
        sys.exit(137)
    if wanted and status in (0, 3, 137):
        sys.exit(1 if status else 3)
    sys.exit(status if status >= 0 else 1)


if __name__ == "__main__":
    main()
