//! The options of mount.cifs(8), as far as they are not those of `frevo mount`.

/// The treatment of an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Treatment {
    /// It asks for what a mount of Frevo does anyway, or is for mount(8) and systemd.
    Usual,
    /// It is ignored, which this sentence says.
    Ignored(&'static str),
    /// It is refused; the sentence says what to use.
    Refused(&'static str),
    /// It stands for these arguments.
    Means(&'static [&'static str]),
    /// It stands for this argument, with its value.
    WithValue(&'static str),
}

use Treatment::{Ignored, Means, Refused, Usual, WithValue};

const MODES: &str = "modes and owners are the server's if it has the POSIX extensions, else those of \
                     uid=, gid=, file_mode= and dir_mode=";
const LEASES: &str = "the server's leases decide what is cached; cache=none switches that off";
const LOCKS: &str = "locks are byte-range locks of the server";
const LINKS: &str = "symbolic links and special files are those of the server";
const NAMES: &str = "names are those of the server";
const SIZES: &str = "the mount chooses the sizes of its requests";
const TIMES: &str = "actimeo= is how long names and attributes are cached";
const LOST: &str = "programs wait for a lost server; --patience of `frevo mount` sets for how long";
const HANDLES: &str = "the mount asks for the handles that the server supports";
pub(super) const PASSWORD: &str = "every user could read the password; write it in a file that only root \
                                   can read, with the lines username= and password=, and give \
                                   credentials=FILE";

/// The options by name.
const OPTIONS: &[(&[&str], Treatment)] = &[
    (
        &[
            "",
            "rw",
            "defaults",
            "auto",
            "noauto",
            "users",
            "nouser",
            "owner",
            "group",
            "nofail",
            "_netdev",
            "exec",
            "suid",
            "nosuid",
            "dev",
            "nodev",
            "async",
            "relatime",
            "noatime",
            "strictatime",
            "nodiratime",
            "lazytime",
            "nolazytime",
            "silent",
            "loud",
            "norelatime",
            "diratime",
            "atime",
            "iversion",
            "noiversion",
            "mand",
            "nomand",
        ],
        Usual,
    ),
    (
        &[
            "sign",
            "perm",
            "serverino",
            "mapposix",
            "brl",
            "lock",
            "nosfu",
            "nomfsymlinks",
            "posix",
            "unix",
            "linux",
            "strictcache",
            "multichannel",
            "user_xattr",
            "nouser_xattr",
            "noacl",
            "acl",
            "intr",
            "tcpnodelay",
            "strictsync",
            "unicode",
            "nomapchars",
            "nodynperm",
            "noposixpaths",
            "posixpaths",
            "nosetuids",
            "noforceuid",
            "noforcegid",
            "nocifsacl",
            "handlecache",
            "witness",
        ],
        Usual,
    ),
    (&["ro"], Means(&["--read-only"])),
    (&["guest"], Means(&["--guest"])),
    (&["seal"], Means(&["--encrypt"])),
    (&["compress"], Means(&["--compress", "on"])),
    (&["nounix", "noposix", "nolinux"], Means(&["--no-posix"])),
    (&["nolease", "nohandlecache", "forcedirectio", "directio"], Means(&["--no-cache"])),
    (&["nomultichannel"], Means(&["--channels", "1"])),
    (&["rdma"], Means(&["--rdma", "required"])),
    (&["nodfs"], Means(&["--dfs", "never"])),
    (&["credentials", "cred"], WithValue("--credentials")),
    (&["max_channels"], WithValue("--channels")),
    (&["actimeo"], WithValue("--attr-timeout")),
    (
        &["noperm", "dynperm", "forceuid", "forcegid", "setuids", "cifsacl", "idsfromsid"],
        Ignored(MODES),
    ),
    (&["modefromsid", "backupuid", "backupgid"], Ignored(MODES)),
    (&["nobrl", "nolock", "nosharesock", "forcemandatorylock"], Ignored(LOCKS)),
    (&["mfsymlinks", "sfu", "reparse", "symlink", "nativesocket", "symlinkroot"], Ignored(LINKS)),
    (&["noserverino", "nocase", "ignorecase", "mapchars", "nomapposix"], Ignored(NAMES)),
    (&["servern", "netbiosname", "rfc1002"], Ignored("SMB over TCP needs no NetBIOS names")),
    (&["rsize", "wsize", "bsize", "rasize", "esize", "max_credits"], Ignored(SIZES)),
    (&["min_enc_offload", "noautotune", "noblocksend"], Ignored(SIZES)),
    (&["acregmax", "acdirmax", "closetimeo"], Ignored(TIMES)),
    (&["nowitness"], Means(&["--no-witness"])),
    (&["hard", "soft", "retrans", "echo_interval", "nointr"], Ignored(LOST)),
    (&["retry", "mount_timeout"], Ignored(LOST)),
    (&["persistenthandles", "nopersistenthandles", "resilienthandles"], Ignored(HANDLES)),
    (&["noresilienthandles", "handletimeout", "snapshot_timeout"], Ignored(HANDLES)),
    (&["fsc", "strictexpire", "unsafe_delete"], Ignored(LEASES)),
    (&["nostrictsync", "nosparse"], Ignored("fsync(2) and holes are the server's")),
    (&["password", "pass", "password2"], Refused(PASSWORD)),
    (&["ip", "addr"], WithValue("--address")),
    (&["unc"], Refused("write the share as the source: //SERVER/SHARE")),
    (
        &["multiuser"],
        Refused(
            "all users of a mount have its account on the server; allow_other lets them use it, or \
             mount once for each user",
        ),
    ),
    (&["cruid", "upcall_target"], Refused("give the key of the user: sec=krb5,keytab=FILE")),
    (&["remount"], Refused("unmount the folder, and mount it with the new options")),
    (
        &["snapshot"],
        Refused("write the token in the source: //SERVER/SHARE/@GMT-YYYY.MM.DD-hh.mm.ss"),
    ),
    (&["bind", "move", "rbind"], Refused("mount the share, then use mount(8) without -t frevo")),
];

/// Returns the treatment of an option; None for one that `frevo mount` has, or that is unknown.
pub(super) fn treatment(name: &str) -> Option<Treatment> {
    OPTIONS.iter().find(|(names, _)| names.contains(&name)).map(|(_, treatment)| *treatment)
}

/// Returns the treatment of an option that depends on its value.
pub(super) fn by_value(name: &str, value: &str) -> Option<Treatment> {
    Some(match (name, value) {
        ("sec", "krb5" | "krb5i") => Means(&["--kerberos", "required"]),
        ("sec", "ntlmssp" | "ntlmsspi" | "ntlmv2" | "ntlmv2i") => Means(&["--kerberos", "off"]),
        ("sec", "none") => Refused("use the mount option guest"),
        ("sec", _) => Refused("write sec=krb5 or sec=ntlmssp; older methods are not secure"),
        ("vers", "default" | "3") => Usual,
        ("vers", "3.1.1" | "3.11") => Means(&["--min-dialect", "3.1.1"]),
        ("vers", "3.02" | "3.0.2") => Means(&["--min-dialect", "3.0.2", "--max-dialect", "3.0.2"]),
        ("vers", "3.0") => Means(&["--min-dialect", "3.0", "--max-dialect", "3.0"]),
        ("vers", "2.1") => Means(&["--min-dialect", "2.1", "--max-dialect", "2.1"]),
        ("vers", "2.0" | "2.0.2") => Means(&["--min-dialect", "2.0.2", "--max-dialect", "2.0.2"]),
        ("vers", "1.0") => Refused(
            "Frevo does not speak SMB 1; leave vers= out if the server has SMB 3.0 or later",
        ),
        ("vers", _) => Refused("write 3.1.1, 3.0.2, 3.0, 2.1, 2.0 or default"),
        ("cache", "none") => Means(&["--no-cache"]),
        ("cache", "strict") => Usual,
        ("cache", _) => Ignored(LEASES),
        ("iocharset", "utf8" | "utf-8") => Usual,
        ("iocharset", _) => Refused("names are UTF-8; leave it out, or write iocharset=utf8"),
        _ => return None,
    })
}
