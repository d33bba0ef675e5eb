"""Samba's tools: accounts with rpcclient, access control lists with smbcacls."""

import re

from ..model import Failure, group

# Each entry: name, SAMR command of rpcclient, patterns that the answer must match. {domain} is the
# server's NetBIOS name, {rid} the user's RID, {sid} the domain's SID.
ACCOUNTS = [
    ("enumdomains", "enumdomains", [r"name:\[{domain}\]", r"name:\[Builtin\]"]),
    ("lookupdomain", "lookupdomain {domain}", [r"Domain SID: {sid}\b"]),
    ("enumdomusers", "enumdomusers", [r"user:\[{user}\] rid:\[{rid:#x}\]", r"user:\[{user2}\]"]),
    ("enumdomgroups", "enumdomgroups", [r"group:\[None\] rid:\[0x201\]"]),
    (
        "enumalsgroups",
        "enumalsgroups builtin",
        [r"group:\[Administrators\] rid:\[0x220\]", r"group:\[Users\] rid:\[0x221\]"],
    ),
    (
        "queryuser-by-name",
        "queryuser {user}",
        [r"User Name\s*:\s*{user}\n", r"user_rid\s*:\s*{rid:#x}\n", r"group_rid\s*:\s*0x201"],
    ),
    ("queryuser-by-rid", "queryuser {rid}", [r"User Name\s*:\s*{user}\n"]),
    (
        "samlookupnames",
        "samlookupnames domain {user} none",
        [r"name {user}: {rid:#x} \(1\)", r"name none: 0x201 \(2\)"],
    ),
    ("samlookuprids", "samlookuprids domain {rid} 513", [r"rid {rid:#x}: {user} \(1\)", r"rid 0x201: None \(2\)"]),
    ("lookupnames", "lookupnames {user}", [r"{user} {sid}-{rid} \(User: 1\)"]),
    ("lookupsids", "lookupsids {sid}-{rid}", [r"{sid}-{rid} {domain}\\{user} \(1\)"]),
    ("queryusergroups", "queryusergroups {rid}", [r"group rid:\[0x201\] attr:\[0x7\]"]),
    ("querygroup", "querygroup 513", [r"Group Name:\s*None"]),
    ("querydominfo", "querydominfo 2", [r"Total Users:\s*[2-9]"]),
    # The three querydispinfo commands have the same answer. In acb the bit 0x10 marks an ordinary
    # account.
    ("querydispinfo", "querydispinfo 1", [r"RID: {rid:#x} acb: 0x00000[0-9a-f]1[0-9a-f] Account: {user}\s"]),
    ("querydispinfo2", "querydispinfo2 1", [r"Account: {user}\s", r"Account: {user2}\s"]),
    ("querydispinfo3", "querydispinfo3 1", [r"Account: {user}\s", r"Account: {user2}\s"]),
    ("querydispinfo-one-by-one", "querydispinfo 1 0 1", [r"Account: {user}\s", r"Account: {user2}\s"]),
    ("querydispinfo-groups", "querydispinfo 3", [r"Account: None\s"]),
    ("querysecobj", "samquerysecobj", [r"type: ACCESS ALLOWED", r"SID: S-1-5-11|SID: S-1-1-0"]),
]
# Commands that Frevo and smbd refuse to every client, with the error text of rpcclient.
REFUSED = [
    ("queryuser-of-nobody", "queryuser 4711", "NO_SUCH_USER"),
    ("createdomuser-refused", "createdomuser intruder", "NT_STATUS_(ACCESS_DENIED|RPC_PROCNUM_OUT_OF_RANGE)"),
    ("deletedomuser-refused", "deletedomuser {user2}", "NT_STATUS_(ACCESS_DENIED|RPC_PROCNUM_OUT_OF_RANGE)"),
]


def rpc(ctx, command):
    server = ctx.server
    return ctx.command(
        "rpcclient",
        server.address,
        "-p",
        server.port,
        "-U",
        f"{server.user}%{server.password}",
        "-c",
        command,
        timeout=60,
    )


@group("rpcclient/accounts-unlisted")
def accounts_unlisted(ctx):
    """Only administrators may list accounts; a user may look up single names."""
    server = ctx.server
    if server.kind != "frevo":
        return
    _, output = rpc(ctx, f"lookupnames {server.user}")
    found = re.search(r"(S-1-5-21-\d+-\d+-\d+)-(\d+) \(User: 1\)", output)
    for name, command in [
        ("enumdomusers", "enumdomusers"),
        ("enumdomgroups", "enumdomgroups"),
        ("enumalsgroups", "enumalsgroups builtin"),
        ("querydispinfo", "querydispinfo 1"),
        ("querygroupmem", "querygroupmem 513"),
        ("queryaliasmem", "queryaliasmem builtin 544"),
    ]:
        with ctx.check(name):
            _, output = rpc(ctx, command)
            # rpcclient prints no error when the server refuses to list users and aliases.
            if re.search(r"rid:\[|RID:|sid:\[", output):
                raise Failure(output.strip()[-200:])
    for name, command, wanted in [
        ("lookupnames", f"lookupnames {server.user2}", r"\(User: 1\)"),
        ("samlookupnames", f"samlookupnames domain {server.user}", rf"name {server.user}: 0x"),
        ("queryuser-oneself", f"queryuser {server.user}", rf"User Name\s*:\s*{server.user}\n"),
        ("useraliases-own", f"queryuseraliases builtin {found[0].split()[0] if found else ''}", r"group rid:\[0x221\]"),
    ]:
        with ctx.check(name):
            status, output = rpc(ctx, command)
            if not re.search(wanted, output):
                raise Failure(f"status {status}, wanted {wanted}: {output.strip()[-200:]}")


@group("rpcclient/accounts", profile="accounts")
def accounts(ctx):
    """Users, groups and domains as SAMR shows them."""
    server = ctx.server
    with ctx.check("who-is-who"):
        _, output = rpc(ctx, f"lookupnames {server.user}")
        found = re.search(r"(S-1-5-21-\d+-\d+-\d+)-(\d+) \(User: 1\)", output)
        _, domains = rpc(ctx, "enumdomains")
        names = [name for name in re.findall(r"name:\[(.*?)\]", domains) if name != "Builtin"]
        if not found or not names:
            raise Failure(f"{output.strip()[-200:]} {domains.strip()[-200:]}")
    known = {"sid": found[1], "rid": int(found[2]), "domain": names[0], "user": server.user, "user2": server.user2}
    for name, command, wanted in ACCOUNTS:
        with ctx.check(name):
            status, output = rpc(ctx, command.format(**known))
            for pattern in wanted:
                if not re.search(pattern.format(**known), output):
                    raise Failure(f"status {status}, wanted {pattern.format(**known)}: {output.strip()[-200:]}")
    for name, command, wanted in REFUSED:
        with ctx.check(name):
            _, output = rpc(ctx, command.format(**known))
            if not re.search(wanted, output):
                raise Failure(f"wanted {wanted}: {output.strip()[-200:] or 'success'}")


class Smbcacls:
    """smbcacls on the share with NT ACLs; names and masks as numbers, so that they compare."""

    def __init__(self, ctx):
        self.ctx = ctx

    def run(self, *args, refused=None):
        server = self.ctx.server
        status, output = self.ctx.command(
            "smbcacls", f"//{server.address}/torture", *args, "-U", f"{server.user}%{server.password}", timeout=60
        )
        if refused:
            if refused not in output:
                raise Failure(f"wanted {refused}: {output.strip()[-200:] or 'success'}")
        elif status or "NT_STATUS_" in output or "ERROR" in output:
            raise Failure(f"status {status}: {output.strip()[-200:]}")
        return output

    def lines(self, name):
        """Returns the lines OWNER, GROUP, CONTROL and ACL, with numbers."""
        return [line.strip() for line in self.run(name, "--numeric").splitlines() if re.match(r"[A-Z]+:", line)]

    def aces(self, name):
        return [line.removeprefix("ACL:") for line in self.lines(name) if line.startswith("ACL:")]


READ, CHANGE, FULL = "0x00120089", "0x001301bf", "0x001f01ff"
EVERYONE, AUTHENTICATED, NETWORK, USERS = "S-1-1-0", "S-1-5-11", "S-1-5-2", "S-1-5-32-545"


@group("smbcacls/lists", profile="torture")
def lists(ctx):
    """Access lists: show, set, add, modify, delete; owners; inheritance."""
    tool, smb = Smbcacls(ctx), ctx.server
    ctx.command(*smb.smbclient("put /etc/hostname file; mkdir folder; mkdir heirs", share="torture"))

    def same(found, *wanted):
        if found != list(wanted):
            raise Failure(f"found {found}, wanted {list(wanted)}")

    with ctx.check("show"):
        shown = tool.lines("file")
        for start in ("REVISION:1", "CONTROL:", "OWNER:S-1-5-21-", "GROUP:S-1-"):
            if not any(line.startswith(start) for line in shown):
                raise Failure(f"no {start} in {shown}")
    with ctx.check("show-names"):
        output = tool.run("file")
        if not re.search(rf"OWNER:\S*\\{smb.user}\n", output):
            raise Failure(output.strip()[-200:])
    with ctx.check("set"):
        tool.run("file", "-S", f"ACL:{EVERYONE}:0/0/{FULL},ACL:{AUTHENTICATED}:0/0/{READ}")
        same(tool.aces("file"), f"{EVERYONE}:0/0x0/{FULL}", f"{AUTHENTICATED}:0/0x0/{READ}")
    with ctx.check("add"):
        tool.run("file", "-a", f"ACL:{NETWORK}:1/0/0x00000002")
        # In the list the denying entries come first.
        same(
            tool.aces("file"),
            f"{NETWORK}:1/0x0/0x00000002",
            f"{EVERYONE}:0/0x0/{FULL}",
            f"{AUTHENTICATED}:0/0x0/{READ}",
        )
    with ctx.check("denied-indeed"):
        _, output = ctx.command(*smb.smbclient("put /etc/hostname file", share="torture"))
        if "NT_STATUS_ACCESS_DENIED" not in output:
            raise Failure(output.strip()[-200:] or "the denied write succeeded")
    with ctx.check("modify"):
        tool.run("file", "-M", f"ACL:{AUTHENTICATED}:0/0/{CHANGE}")
        if f"{AUTHENTICATED}:0/0x0/{CHANGE}" not in tool.aces("file"):
            raise Failure(f"{tool.aces('file')}")
    with ctx.check("delete"):
        tool.run("file", "-D", f"ACL:{NETWORK}:1/0/0x00000002")
        same(tool.aces("file"), f"{EVERYONE}:0/0x0/{FULL}", f"{AUTHENTICATED}:0/0x0/{CHANGE}")
    with ctx.check("names-and-letters"):
        tool.run("file", "-S", "ACL:Everyone:ALLOWED/0/FULL,ACL:BUILTIN\\Users:ALLOWED/0/READ")
        same(tool.aces("file"), f"{EVERYONE}:0/0x0/{FULL}", f"{USERS}:0/0x0/0x001200a9")
    with ctx.check("chown-to-another-refused"):
        tool.run("file", "-C", smb.user2, refused="NT_STATUS_")
    with ctx.check("chown-to-oneself"):
        before = tool.lines("file")
        tool.run("file", "-C", smb.user)
        same(tool.lines("file"), *before)
    with ctx.check("inherited-by-new"):
        tool.run("heirs", "-S", f"ACL:{EVERYONE}:0/3/{FULL},ACL:{USERS}:0/9/{READ},ACL:{AUTHENTICATED}:0/10/{READ}")
        ctx.command(*smb.smbclient("cd heirs; put /etc/hostname child; mkdir inner", share="torture"))
        flagless = [
            re.sub(r"/0x1[0-9a-f]/", lambda m: f"/0x{int(m[0][1:-1], 16) & 0xF:x}/", ace)
            for ace in tool.aces("heirs\\child")
        ]
        same(flagless, f"{EVERYONE}:0/0x0/{FULL}", f"{USERS}:0/0x0/{READ}")
        inner = [ace for ace in tool.aces("heirs\\inner") if ace.startswith(EVERYONE)]
        if not re.fullmatch(rf"{EVERYONE}:0/0x1?3/{FULL}", inner[0] if inner else ""):
            raise Failure(f"{tool.aces('heirs' + chr(92) + 'inner')}")
    with ctx.check("propagated"):
        tool.run("heirs", "--propagate-inheritance", "-a", f"ACL:{USERS}:0/3/{CHANGE}")
        for name in ("heirs\\child", "heirs\\inner"):
            if not any(re.match(rf"{USERS}:0/0x1[03]/{CHANGE}", ace) for ace in tool.aces(name)):
                raise Failure(f"{name}: {tool.aces(name)}")
    with ctx.check("inheritance-broken"):
        tool.run("heirs\\child", "-I", "copy")
        control = next(line for line in tool.lines("heirs\\child") if line.startswith("CONTROL:"))
        if not int(control.split(":")[1].split("/")[0], 16) & 0x1000:
            raise Failure(f"not protected: {control}")
    with ctx.check("sddl"):
        # The tool crashes when it asks a server without a domain for the domain's SID, so the SID
        # is given here.
        owner = next(line for line in tool.lines("file") if line.startswith("OWNER:")).removeprefix("OWNER:")
        said = tool.run("file", "--sddl", "--domain-sid=" + owner.rpartition("-")[0]).strip().splitlines()[-1]
        if not re.search(rf"O:{owner}G:\S+?D:\S*\(A;;(FA|0x001f01ff);;;WD\)", said):
            raise Failure(said)
    with ctx.check("maximum-access"):
        output = tool.run("file", "-x")
        if not re.search(r"0x(001)?f01ff|0x1f01ff", output, re.I):
            raise Failure(output.strip()[-200:])
    with ctx.check("absent"):
        tool.run("nothing here", refused="NT_STATUS_OBJECT_NAME_NOT_FOUND")
