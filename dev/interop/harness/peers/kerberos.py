"""Logons by Kerberos, in a realm of MIT's KDC."""

import os

from .. import suites
from ..model import HERE, Failure, group, require_tool
from ..prepare import GSSAPI, VENV
from ..realm import ADDRESS, with_realm

CHECKS = [
    "logs-on",
    "impacket",
    "ntlm-off",
    "other-encryption-type",
    "wrong-service",
    "wrong-clock",
    "no-account",
    "instance",
    "account-disabled",
    "keytab-too-old",
    "ticket-too-old",
    "keytab-of-all",
]

CLIENT_CHECKS = [
    "from-cache",
    "from-directory",
    "from-daemon",
    "from-password",
    "from-keytab",
    "no-ticket",
    "expired",
    "other-user",
    "wrong-password",
    "wrong-service",
    "wrong-clock",
    "address",
    "no-kdc",
    "falls-back",
    "mount-renewed",
    "mount-keytab",
]


@group("kerberos/realm")
def realm(ctx):
    """smbclient with tickets of MIT's KDC; each wrong one is refused with one line in the log that tells what to do."""
    if ctx.server.kind != "frevo":
        return
    only_one = r"encryption_types = [\"aes256-cts-hmac-sha1-96\"]"
    command = with_realm(ctx.server, only_one, sections=["ntlm = false"])
    checks = HERE / "peers/kerberos-checks"
    status, output = ctx.command(*command, checks, ctx.server.program, VENV / "bin/python", timeout=120)
    ctx.report(output, needed=CHECKS)
    if status:
        raise Failure(f"status {status}")


@group("kerberos/client", seconds=45)
def client(ctx):
    """Frevo's client with tickets of MIT's KDC: copies, mounts past their end, and tells what is wrong."""
    command = with_realm(ctx.server, directory=ctx.work / "realm")
    checks = HERE / "peers/kerberos-client"
    _, output = ctx.command(*command, checks, os.environ["FREVO_CLIENT"], timeout=150)
    ctx.report(output, needed=CLIENT_CHECKS)


USES = ["write-read", "sealed", "after-the-end"]
LIBRARIES = [f"{client}-{use}" for client in ("smbprotocol", "smbj") for use in USES]


@group("kerberos/clients", beside=40, full_only=True)
def clients(ctx):
    """smbprotocol by GSS-API and smbj by JAAS: read, write, and what they make of the end of a ticket."""
    command = with_realm(ctx.server, directory=ctx.work / "realm")
    checks = HERE / "peers/kerberos-clients"
    _, output = ctx.command(*command, checks, GSSAPI / "bin/python", suites.JAVA, timeout=150)
    ctx.report(output, needed=LIBRARIES)


@group("kerberos/cifs", beside=30)
def cifs(ctx):
    """cifs.ko with sec=krb5: mounts, and keeps a file open past the end of the ticket."""
    # The guest sees files on disk, such as the work directory, but no files in memory.
    command = with_realm(ctx.server, directory=ctx.work / "realm")
    _, output = ctx.command(*command, HERE / "peers/kerberos-mount", timeout=150)
    ctx.report(output, needed=["mounted", "written", "fsync-at-the-end", "renewed", "goes-on"])


def near_domain(ctx, checks, *arguments, needed, timeout=150):
    """Runs peers/CHECKS beside a controller of Samba's domain, on a host that has not joined it yet."""
    if ctx.server.kind != "frevo":
        return
    command = [HERE / "with-domain", "-n", "-s", ADDRESS, "--", HERE / "peers" / checks]
    _, output = ctx.command(*command, ctx.server.program, ADDRESS, *arguments, timeout=timeout)
    ctx.report(output, needed=needed)


@group("kerberos/domain")
def domain(ctx):
    """A member of Samba's domain: its users log on by ticket, and their groups count in access lists."""
    if ctx.server.kind != "frevo":
        return
    command = [HERE / "with-domain", "-s", ADDRESS, "--", HERE / "peers/domain-checks"]
    programs = [os.environ["FREVO_CLIENT"], VENV / "bin/python"]
    _, output = ctx.command(*command, ctx.server.program, ADDRESS, *programs, timeout=150)
    needed = ["logs-on", "group", "nested-group", "client", "client-at-controller"]
    tickets = ["own-request", "replayed", "altered-pac"]
    names = ["listed-by-name", "unknown-name", "mapped-numbers", "names-and-sids"]
    ctx.report(output, needed=[*needed, *names, *tickets, "listed-by-sid", "controller-away", "password-changed"])


@group("kerberos/realms")
def realms(ctx):
    """Two realms of MIT's KDC that trust each other, and a server with keys of both: their users log on."""
    if ctx.server.kind != "frevo":
        return
    command = [HERE / "with-realm", "-a", ADDRESS, "-s", ADDRESS, "--", HERE / "peers/realms-checks"]
    _, output = ctx.command(*command, ctx.server.program, ADDRESS, os.environ["FREVO_CLIENT"], timeout=100)
    ctx.report(output, needed=["own-realms", "across", "own-client", "no-account", "realm-left-out"])


MEMBERSHIP = [
    "wrong-password",
    "joins",
    "status",
    "logs-on",
    "wrong-clock",
    "renews",
    "account-disabled",
    "password-of-another",
    "leaves",
]


@group("kerberos/membership", full_only=True)
def membership(ctx):
    """`frevo domain` joins Samba's domain by net and by adcli, checks and renews the membership, and leaves."""
    for tool in ["net", "adcli"]:
        by_hand = ["by-hand"] if tool == "adcli" else []
        needed = [f"{tool}-{name}" for name in [*MEMBERSHIP, *by_hand]]
        near_domain(ctx, "membership-checks", tool, needed=needed)


CLUSTER = ["joins", "second-node", "sealed", "logs-on", "renews", "killed", "fails-over", "leaves"]


@group("domain/cluster", full_only=True, seconds=120)
def of_cluster(ctx):
    """Two nodes with one account in Samba's domain: logons before and after renewals, one killed, and a failover."""
    require_tool("etcd")
    for tool in ["net", "adcli"]:
        needed = [f"{tool}-{name}" for name in CLUSTER]
        near_domain(ctx, "cluster-domain-checks", tool, needed=needed, timeout=300)


@group("kerberos/controller", full_only=True)
def controller(ctx):
    """A member whose name server and krb5.conf do not know the domain: the controller of the join is all it needs."""
    near_domain(ctx, "controller-checks", needed=["no-address", "joins", "status", "named", "resolved"])


@group("domain/names", full_only=True)
def names(ctx):
    """Names of the domain in rules: `frevo check` with and without a controller, a reload, a controller by address."""
    if ctx.server.kind != "frevo":
        return
    command = [HERE / "with-domain", "-s", ADDRESS, "--", HERE / "peers/names-checks"]
    _, output = ctx.command(*command, ctx.server.program, ADDRESS, timeout=150)
    ctx.report(output, needed=["valid", "gone", "dropped", "reload", "by-address"])


def renewal(ctx, tool, *checks, timeout):
    """Runs peers/renewal-checks with one of the programs that can change a password."""
    numbered = [argument for check in checks for argument in check]
    needed = [f"{tool}-{check}" for check, _ in checks]
    near_domain(ctx, "renewal-checks", tool, *numbered, needed=needed, timeout=timeout)


@group("domain/renewal", full_only=True, seconds=240)
def renewal_short(ctx):
    """A server whose account gets 10 new passwords under 20 clients that log on, and renewals that are killed."""
    for tool in ["net", "adcli"]:
        renewal(ctx, tool, ("no-refusals", 10), ("killed-one", 8), ("killed-all", 8), timeout=300)


# All of it, in parts of which each has a domain of its own.
LONG = {"refusals": [("no-refusals", 100)], "one": [("killed-one", "all")], "all": [("killed-all", "all")]}


def renewal_long(tool, part):
    """Makes the group of one part."""

    @group(f"domain/renewal-long-{tool}-{part}", named_only=True)
    def run(ctx):
        """As domain/renewal: 100 new passwords, or killed before each system call that can change anything."""
        renewal(ctx, tool, *LONG[part], timeout=3600)

    return run


for each_part in LONG:
    for each_tool in ["net", "adcli"]:
        renewal_long(each_tool, each_part)


WINBIND = [
    "logs-on",
    "principal-name",
    "other-suffix",
    "group",
    "account",
    "wrong-password",
    "throttled",
    "disabled",
    "must-change",
    "expired",
    "hours",
    "workstation",
    "locked",
    "status",
    "no-controller",
    "no-winbind",
    "winbind-again",
]


@group("kerberos/winbind", full_only=True)
def winbind(ctx):
    """Users of Samba's domain log on by NTLM, which winbind judges; it goes away and comes back."""
    near_domain(ctx, "winbind-checks", needed=WINBIND, timeout=200)


@group("kerberos/rights", full_only=True)
def rights(ctx):
    """200 random triples of access list, user of a domain and desired access, judged by Frevo and by smbd alike."""
    near_domain(ctx, "rights-checks", VENV / "bin/python", needed=["same-rights"], timeout=200)


@group("kerberos/member", full_only=True)
def member(ctx):
    """200 random triples of user, file and operation on three shares of a member: Frevo does as smbd on one tree."""
    needed = ["same-rights-on-one-tree", "list-for-a-group", "list-for-a-stranger", "client-at-member"]
    near_domain(ctx, "member-checks", VENV / "bin/python", needed=needed, timeout=200)


ADMINISTRATORS = [
    "domain",
    "role",
    "names",
    "user-name",
    "members",
    "rules",
    "rights",
    "owner",
    "audit-list",
    "manages",
    "told",
]


@group("domain/administrators", full_only=True)
def administrators(ctx):
    """A domain with administrators: Frevo and smbd as members, called alike by an administrator and by others."""
    near_domain(ctx, "administrators-checks", needed=ADMINISTRATORS, timeout=200)
