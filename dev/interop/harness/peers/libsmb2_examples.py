"""libsmb2's own examples, each against what it must show or leave on the server's disk."""

from .. import trees
from ..model import Failure, group
from ..suites import LIBSMB2, LIBSMB2_EXAMPLES, LIBSMB2_VERSION

LENGTH = 3_000_001


class Examples:
    """Runs one example after the other and notes which ran."""

    def __init__(self, ctx):
        self.ctx, self.server, self.ran = ctx, ctx.server, set()
        self.root = f"smb://{ctx.server.user}@{ctx.server.address}:{ctx.server.port}"
        self.share = f"{self.root}/{ctx.server.share}"
        (ctx.work / "users").write_text(f":{ctx.server.user}:{ctx.server.password}\n")

    def run(self, name, *arguments, status=0):
        """Returns the output of the example smb2-NAME."""
        self.ran.add(f"smb2-{name}")
        # Debian's libsmb2 tries Kerberos first, so the URL must ask for NTLM.
        words = [f"{word}?sec=ntlmssp" if str(word).startswith("smb://") else word for word in arguments]
        command = [LIBSMB2 / "run", f"smb2-{name}", *words]
        env = {"NTLM_USER_FILE": str(self.ctx.work / "users")}
        found, output = self.ctx.command(*command, timeout=40, env=env)
        if found != status:
            raise Failure(f"status {found}: {output.strip()[-200:]}")
        return output

    def shows(self, name, *arguments, wanted):
        """A row: the example prints each text of `wanted`."""
        with self.ctx.check("-".join([name, *arguments[1:]])):
            output = self.run(name, *arguments)
            for text in wanted:
                if text not in output:
                    raise Failure(f"{text!r} is not in {output.strip()[-200:]!r}")


@group("clients/libsmb2-examples", full_only=True)
def libsmb2_examples(ctx):
    """All examples of the C library libsmb2 that are no servers."""
    if not (LIBSMB2 / LIBSMB2_EXAMPLES[0]).exists():
        ctx.add("examples", "skip", 0.0, "their source could not be fetched")
        return
    ctx.add("version", "pass", 0.0, f"libsmb2 {LIBSMB2_VERSION}")
    examples, share = Examples(ctx), ctx.server.path
    url = examples.share
    source = trees.fill(ctx.work / "source", LENGTH, 90)
    (share / "folder").mkdir()
    (share / "folder/inside").write_bytes(b"content\n")
    (share / "text").write_text("".join(f"line {number}\n" for number in range(2000)))
    (share / "near").symlink_to("text")

    for name in ("put-sync", "put-async"):
        with ctx.check(name):
            # smb2-put-async exits with 10 when it has reached the end of its file.
            examples.run(name, source, f"{url}/{name}", status=10 if name == "put-async" else 0)
            trees.same_file(source, share / name)
    for name in ("cat-sync", "cat-async"):
        with ctx.check(name):
            if examples.run(name, f"{url}/text") != (share / "text").read_text():
                raise Failure("it prints other bytes than the file has")
    size = (share / "text").stat().st_size
    examples.shows("ls-async", f"{url}/", wanted=["folder ", "text ", "put-sync ", str(LENGTH)])
    examples.shows("stat-sync", f"{url}/text", wanted=["Type:FILE", f"Size:{size}\n"])
    examples.shows("statvfs-sync", f"{url}/", wanted=["Blocksize:", "Free:"])
    examples.shows("lseek-sync", f"{url}/text", wanted=[f"SIZE:{size}\n", f"SEEK_SET to eof:{size}\n"])
    examples.shows("readlink", f"{url}/near", wanted=["Link:text"])
    examples.shows("raw-stat-async", f"{url}/text", wanted=["Attributes: ", "Last Write Time: ", str(size)])
    examples.shows("raw-getsd-async", f"{url}/text", wanted=["Revision: 1", "Owner", "S-1-"])
    # The levels are FileFsVolumeInformation, FileFsSizeInformation, FileFsDeviceInformation and
    # FileFsFullSizeInformation.
    for level, wanted in (("1", "VolumeSerialNumber"), ("3", "BytesPerSector"), ("4", "DeviceType"), ("7", "Caller")):
        examples.shows("raw-fsstat-async", f"{url}/", level, wanted=[wanted])
    examples.shows("share-enum", f"{examples.root}/", wanted=["IPC$", ctx.server.share, ctx.server.share2])
    examples.shows("share-info", url, wanted=[ctx.server.share, "DISKTREE"])
    examples.shows("lsa-lookupsids", url, wanted=["TranslatedNames", "Name:"])
    examples.shows("CMD-FIND", f"{url}/", wanted=["Second scan of directory done.", "Third scan of directory done."])
    for name, length in (("truncate-sync", 1000), ("ftruncate-sync", 2_000_000)):
        with ctx.check(name):
            examples.run(name, f"{url}/put-sync", str(length))
            if (share / "put-sync").stat().st_size != length:
                raise Failure(f"the file has {(share / 'put-sync').stat().st_size} bytes")
    with ctx.check("rename-sync"):
        examples.run("rename-sync", f"{url}/", "put-async", "folder/moved")
        trees.same_file(source, share / "folder/moved")
    if left := set(LIBSMB2_EXAMPLES) - examples.ran:
        ctx.add("all", "fail", 0.0, f"not run: {', '.join(sorted(left))}")
