"""The server under test, by profile: Frevo, or smbd as the reference."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from . import slapd
from .model import HERE, OUT

ADDRESS, PORT = "198.18.0.1", 445
# Words of log lines about a crash of Frevo or smbd, or about a request that held a core.
LOG_FAULTS = ("panicked at", "INTERNAL ERROR", "PANIC", "held a core")
# An address whose speed and capabilities are set in the configuration.
INTERFACE_TOLD = "198.19.41.1"

# On the shares smbd acts as root, as Frevo does here, since the host may put files of root there.
AS_ROOT = ["-s", "force user = root"]

# A share of smbd that clamd scans, with the act on a find. Nothing is remembered, since smbd remembers by
# name and time alone.
VIRUSFILTER = """{name}=vfs objects = virusfilter
virusfilter:scanner = clamav
virusfilter:socket path = {directory}/clamd.ctl
virusfilter:scan on open = yes
virusfilter:block access on error = yes
virusfilter:cache entry limit = 0
virusfilter:infected file action = {action}
virusfilter:rename suffix = .infected
virusfilter:quarantine directory = {directory}/quarantine
read only = no
force user = root"""

# The shares that are scanned, with smbd's act on a find.
SCANNED = {"inbox": "nothing", "renamed": "rename", "moved": "quarantine", "icap": "nothing"}

# By default Frevo requires encryption and signatures, and smbd only offers them. Here Frevo only
# offers them, too, so that each client uses the protection that its check names. Other profiles say
# so in their name.
OFFERED = ["-x", "--encryption", "-x", "offered", "-x", "--signing", "-x", "offered"]
OLD = ["-x", "--min-dialect", "-x", "2.0.2"]

# With one core every client shares the core that is attacked.
ATTACKED = [
    *OFFERED,
    "-x",
    "--listen",
    "-x",
    f":{PORT}",
    "-c",
    "cores = 1",
    "-c",
    "[limits]",
    "-c",
    'memory = "64M"',
    "-m",
    'forbidden=deny = ["smbuser"]',
]

# For each profile the arguments of with-frevo and of with-samba. {address} stands for the server's
# address.
PROFILES = {
    "default": (OFFERED, [*AS_ROOT, "-g", "server min protocol = SMB3_00"]),
    "old-dialects": ([*OFFERED, *OLD], AS_ROOT),
    # Frevo with its default settings.
    "as-shipped": ([], [*AS_ROOT, "-g", "server smb encrypt = required", "-g", "server signing = mandatory"]),
    "signed-only": (["-x", "--encryption", "-x", "offered"], [*AS_ROOT, "-g", "server signing = mandatory"]),
    "no-encryption": (["-x", "--encryption", "-x", "off"], [*AS_ROOT, "-g", "server smb encrypt = off"]),
    "read-only": ([*OFFERED, "-x", "--read-only"], [*AS_ROOT, "-s", "read only = yes"]),
    # The share names that other projects' suites expect. smb-rs asks for short names, which smbd
    # makes by default.
    "suites": (
        [
            *OFFERED,
            *OLD,
            "-m",
            "share-encrypted=encrypt = true",
            "-m",
            "MyShare=short_names = true",
            "-m",
            "PublicShare",
            "-m",
            "dfs",
        ],
        [*AS_ROOT, "-m", "share-encrypted=encrypt = true", "-m", "MyShare", "-m", "PublicShare"],
    ),
    # The share squeezed has its data compressed by clients that can.
    "compression": ([*OFFERED, "-m", 'squeezed=compress = "all"'], []),
    # A client makes one channel per address, or several channels to an address with RSS.
    "multichannel": (
        [*OFFERED, "-x", "--listen", "-x", f"0.0.0.0:{PORT}"],
        [*AS_ROOT, "-i", "{address};speed=10000000000,capability=RSS"],
    ),
    # The server listens on all addresses. For one address the configuration replaces the kernel's
    # speed and capabilities.
    "interfaces": (
        [
            *OFFERED,
            "-x",
            "--listen",
            "-x",
            f":{PORT}",
            "-c",
            "[[interface]]",
            "-c",
            f'address = "{INTERFACE_TOLD}"',
            "-c",
            'speed = "25G"',
            "-c",
            "rss = false",
            "-c",
            "rdma = true",
        ],
        [],
    ),
    # The shares are on tmpfs: on ext4 the attribute with an ACL takes a block, and the multichannel
    # tests then find that an empty file has an allocation.
    "torture": (
        [*OFFERED, *OLD, "-x", "--test-hooks", "-c", "anonymous = true", "-e"],
        ["-e", "-i", "{address};speed=10000000000,capability=RSS"],
    ),
    # SMB over QUIC, beside TCP.
    "quic": ([*OFFERED, *OLD, "-q", "4433", "-x", "--test-hooks", "-c", "anonymous = true"], []),
    "torture-signed": (["-x", "--encryption", "-x", "offered", *OLD], ["-g", "server signing = mandatory"]),
    "torture-nonotify": ([*OFFERED, *OLD], ["-g", "change notify = no"]),
    # Root may read and set system access control lists.
    "crossing": ([*OFFERED, "-r"], [*AS_ROOT, "-r"]),
    # A server with little memory, which listens on all addresses and has a share that the account
    # may not use.
    "attacks": (ATTACKED, []),
    "attacks-as-shipped": (["-x", "--listen", "-x", f":{PORT}"], []),
    "attacks-descriptors": ([*ATTACKED, "-n", "2048"], []),
    # Every user may list the accounts, as on smbd.
    "accounts": ([*OFFERED, "-c", 'account_listing = "users"'], AS_ROOT),
    # Remote procedure calls over TCP, too.
    "rpc": ([*OFFERED, "-c", 'account_listing = "users"', "-c", "[rpc]", "-c", "enabled = true"], AS_ROOT),
    # The group mounts a file system before the server starts, and shares it.
    "odd-disk": ([*OFFERED, "-m", "disk"], [*AS_ROOT, "-m", "disk"]),
    # Users may change their passwords.
    "passwords": (OFFERED, AS_ROOT),
    # Deleted files of one share go to a recycle bin.
    "recycle": (
        [*OFFERED, "-m", 'bin=recycle = { exclude = ["*.tmp"] }'],
        [
            *AS_ROOT,
            "-s",
            "vfs objects = recycle",
            "-s",
            "recycle:repository = .recycle/%U",
            "-s",
            "recycle:keeptree = yes",
            "-s",
            "recycle:versions = yes",
        ],
    ),
    # cifs.ko mounts with `posix`. smbd has these extensions from 4.18 on.
    "unix-extensions": (
        OFFERED,
        [*AS_ROOT, "-g", "server min protocol = SMB3_00", "-g", "smb3 unix extensions = yes"],
    ),
    # The share dfs is the root of a namespace, which root may change over the network.
    "namespaces": ([*OFFERED, "-r", "-D"], ["-r"]),
    # Administrators may add shares below a folder, which must exist when the server starts.
    "share-roots": ([*OFFERED, "-A", "smbuser", "-R", "roots"], []),
    # The folder fsrvp_share must be a btrfs when the server starts. smbd keeps the shares of copies in its registry.
    "shadow-copies": (
        [*OFFERED, "-r", "-m", 'fsrvp_share=[share.snapshots]\nschedule = "none"'],
        [
            "-r",
            "-g",
            "registry shares = yes",
            "-g",
            "include = registry",
            "-M",
            "fsrvp_share=vfs objects = btrfs\nbtrfs: manipulate snapshots = yes",
        ],
    ),
    # Two shares let guests in, who may write to one of them. The addresses are not private ones.
    "guests": (
        [
            *OFFERED,
            "-c",
            'unknown_users = "guest"',
            "-c",
            'encryption = "offered"',
            "-m",
            'scans=guest = "nobody"\nhosts_allow = ["198.18.0.0/15"]',
            "-m",
            'inbox=guest = "nobody"\nguest_write = true\nhosts_allow = ["198.18.0.0/15"]',
        ],
        [
            "-g",
            "map to guest = bad user",
            "-M",
            "scans=guest ok = yes\nread only = yes",
            "-M",
            "inbox=guest ok = yes\nread only = no",
        ],
    ),
    # One share is searched by Spotlight. smbd has no index: its answers are those of an empty one.
    "spotlight": (
        [*OFFERED, "-m", "spotl=index = true\nspotlight = true", "-m", "nospotl"],
        ["-g", "spotlight backend = noindex", "-M", "spotl=spotlight = yes", "-M", "nospotl=spotlight = no"],
    ),
    # Files of the share archive are written once.
    "worm": (
        [*OFFERED, "-m", 'archive=worm = { after = "3 seconds" }'],
        [*AS_ROOT, "-M", "archive=vfs objects = worm\nworm:grace_period = 3\nread only = no\nforce user = root"],
    ),
    # clamd and c-icap are started by the groups, clamd also at {directory}/clamd.ctl.
    "scanning": (
        [
            *OFFERED,
            "-m",
            'inbox=scan = { service = "clamd://{address}:3310" }',
            "-m",
            'renamed=scan = { service = "clamd://{address}:3310", found = "rename" }',
            "-m",
            'moved=scan = { service = "clamd://{address}:3310", found = "quarantine", '
            'quarantine = "{directory}/quarantine" }',
            "-m",
            'icap=scan = { service = "icap://{address}:1344/virus_scan" }',
        ],
        [
            *AS_ROOT,
            *(
                part
                for name, action in SCANNED.items()
                for part in ("-M", VIRUSFILTER.replace("{name}", name).replace("{action}", action))
            ),
        ],
    ),
    # slapd is started by the group.
    "ldap": (
        [
            *OFFERED,
            *(
                part
                for line in (
                    "[ldap]",
                    f'urls = ["ldaps://{{address}}:{slapd.TLS_PORT}", "ldap://{{address}}:{slapd.PORT}"]',
                    f'base = "{slapd.BASE}"',
                    f'bind_dn = "{slapd.ASKS}"',
                    'password_file = "{directory}/ldap.password"',
                    'ca = "{directory}/ldap.pem"',
                    'nt_hash_attribute = "sambaNTPassword"',
                    "cache_seconds = 2",
                    "away_seconds = 6",
                )
                for part in ("-c", line)
            ),
            "-m",
            'staff=allow = ["@staff"]',
            "-m",
            'west=allow = ["@west"]',
            "-m",
            'first=allow = ["@First"]',
            "-m",
            'admins=allow = ["@Administrators"]',
        ],
        [],
    ),
    "recycle-host-users": ([*OFFERED, "-u", "-m", "bin=recycle = true"], []),
    # The server uses files with the rights of the host's user who has logged on.
    "host-users": ([*OFFERED, "-u"], ["-g", "server min protocol = SMB3_00"]),
}


def filled(text, known):
    """Returns a text with values in place of their names."""
    for name, value in known.items():
        text = text.replace(name, value)
    return text


def newer_samba(version):
    """Returns the chroot with this release of Samba."""
    done = subprocess.run([HERE / "newer-samba", version], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.strip()


class Server:
    """A running server; `kind` is frevo or smbd."""

    user, user2, password = "smbuser", "smbuser2", "Passw0rd"
    share, share2 = "share", "share2"
    address, port = ADDRESS, PORT

    def __init__(self, kind, profile, program=None, address=ADDRESS, samba=None, port=PORT, disk=None, more=()):
        """`samba` is the release whose smbd is the reference and whose smbtorture asks; None for Debian's own.

        `disk` attaches a file system in the server's directory before it starts, and detaches it afterwards. `more` are
        further arguments of with-frevo or with-samba.
        """
        self.kind, self.profile, self.address, self.program, self.samba = kind, profile, address, program, samba
        self.directory = Path(tempfile.mkdtemp(prefix=f"{kind}-{profile}.", dir=os.environ["TMPDIR"]))
        self.path, self.path2 = self.directory / "share", self.directory / "share2"
        self.port, self.disk = port, disk
        if profile == "scanning":
            # Frevo is confined to folders that are there when it starts.
            (self.directory / "quarantine").mkdir()
        if profile == "ldap":
            slapd.secret(self.directory)
        if disk:
            disk.attach(self.directory)
        with_it = HERE / ("with-frevo" if kind == "frevo" else "with-samba")
        args = [with_it, "-a", address, "-p", str(port), "-d", self.directory]
        known = {"{address}": address, "{directory}": str(self.directory)}
        args += [filled(a, known) for a in PROFILES[profile][0 if kind == "frevo" else 1]]
        args += more
        if kind == "frevo":
            # From 4.18 on smbd updates write times at once, as Windows 10 does.
            args += ["-b", program, *(["-w"] if samba else [])]
        elif samba:
            args += ["-R", newer_samba(samba)]
        # The server ends when the input of its child `cat` ends. The input ends even if this
        # process is killed.
        self.child = subprocess.Popen(
            [*map(str, args), "--", "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if self.child.stdout.readline() != b"ready\n":
            said = self.child.stderr.read().decode(errors="replace")
            if disk:
                disk.detach()
            shutil.rmtree(self.directory, ignore_errors=True)
            raise RuntimeError(f"{kind} did not start with profile {profile}: {said.strip()}")

    def smbclient(self, *commands, share=None, user=None, password=None, options=()):
        """Returns the command line of an smbclient that runs `commands` in a share, by default as the first user."""
        where = f"//{self.address}/{share or self.share}"
        account = f"{user or self.user}%{password or self.password}"
        return ["smbclient", where, "-p", str(self.port), "-U", account, *options, "-c", "; ".join(commands)]

    def environment(self):
        """Returns the environment variables for peers and linux-client."""
        return {
            "SMB_ADDR": self.address,
            "SMB_PORT": str(self.port),
            "SMB_SHARE": self.share,
            "SMB_SHARE2": self.share2,
            "SMB_USER": self.user,
            "SMB_USER2": self.user2,
            "SMB_PASS": self.password,
            "LC_ALL": "C.UTF-8",
        }

    def is_alive(self):
        """Returns True if the server still accepts connections."""
        try:
            socket.create_connection((self.address, self.port), timeout=5).close()
        except OSError:
            return False
        return True

    def log_path(self):
        return self.directory / ("log.frevo" if self.kind == "frevo" else "log.smbd")

    def panics(self):
        """Returns log lines about a crash, or about a request that held a core."""
        try:
            with open(self.log_path(), errors="replace") as log:
                return [line.strip() for line in log if any(words in line for words in LOG_FAULTS)]
        except OSError:
            return []

    def clear(self, *more):
        """Empties the shares' directories for the next group, and those of the profile's shares in `more`."""
        for share in (self.path, self.path2, *(self.directory / name for name in more)):
            for entry in os.scandir(share):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)

    def stop(self):
        """Stops the server, keeps its log and removes its directory."""
        self.child.stdin.close()
        try:
            status = self.child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.child.terminate()
            status = self.child.wait(timeout=30)
        worker = os.environ.get("FREVO_INTEROP_WORKER", "0")
        kept = OUT / "logs" / f"server-{self.kind}-{self.profile}{'' if worker == '0' else f'-{worker}'}.log"
        if self.log_path().exists():
            shutil.copyfile(self.log_path(), kept)
        if self.disk:
            self.disk.detach()
        shutil.rmtree(self.directory, ignore_errors=True)
        return status
