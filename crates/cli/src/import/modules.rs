//! Samba's VFS modules and their options (`fruit:model`), and what becomes of each.

use super::options::Effect::{self, Converted, Harmless, LeftOut, Opens, Stricter};
use super::words::truth;

/// A module of Samba's.
#[derive(Debug)]
pub(super) struct Module {
    pub(super) name: &'static str,
    /// The word before the colon of its options; the name, unless it differs.
    prefix: &'static str,
    pub(super) effect: Effect,
    pub(super) why: &'static str,
    /// Options that have an effect of their own.
    options: &'static [ModuleOption],
}

/// An option of a module that is not as harmless as its module: name without blanks, effect,
/// values without the effect, reason.
type ModuleOption = (&'static str, Effect, &'static [&'static str], &'static str);

const fn module(name: &'static str, effect: Effect, why: &'static str) -> Module {
    Module { name, prefix: name, effect, why, options: &[] }
}

const FASTEST: &str = "Frevo uses the fastest method of the system";
const LISTS: &str = "it keeps access lists where Frevo does not find them";
const ELSEWHERE: &str = "the files of the share are not in a folder of this machine";
const SHOWN: &str = "it decides which files a user sees";
const AUDIT_PLACE: &str = "the log goes to syslog as authpriv.info, program frevo-audit; see [audit] for a file or the journal";
const TESTS: &str = "a module for tests of Samba";

/// All modules of Samba 4.17 to 4.24.
static MODULES: &[Module] = &[
    Module {
        options: &[
            (
                "security_acl_name",
                Opens,
                &["security.ntacl", "user.ntacl"],
                "access lists are read in security.NTACL and user.NTACL only",
            ),
            (
                "ignoresystemacls",
                Opens,
                &["no"],
                "lists that smbd stored so are not obeyed; copy them with `frevo acl`, or with robocopy /sec",
            ),
        ],
        ..module("acl_xattr", Converted, "")
    },
    Module {
        options: &[
            ("timemachine", Converted, &[], ""),
            ("timemachinemaxsize", Converted, &[], ""),
            ("model", Converted, &[], ""),
            (
                "metadata",
                LeftOut,
                &["stream"],
                "Finder information is in streams; Netatalk's is not read",
            ),
            (
                "resource",
                LeftOut,
                &["stream"],
                "resource forks are in streams; AppleDouble files stay ordinary files",
            ),
            (
                "encoding",
                LeftOut,
                &["native"],
                "names that were mapped to private characters stay so",
            ),
            ("locking", LeftOut, &["none"], "locks of Netatalk are not known"),
            (
                "nfs_aces",
                LeftOut,
                &["yes"],
                "macOS may set the mode of a file where it may set its access list",
            ),
            ("veto_appledouble", LeftOut, &["no"], "AppleDouble files (._name) are ordinary files"),
            ("veto_localized", LeftOut, &["no"], "files named .localized are ordinary files"),
            ("ignore_zero_aces", Stricter, &["yes"], "an empty access list lets nobody in"),
        ],
        ..module("fruit", Converted, "")
    },
    Module {
        prefix: "shadow",
        options: &[
            ("snapdir", Converted, &[], ""),
            ("basedir", Converted, &[], ""),
            ("mountpoint", Converted, &[], ""),
            ("format", Converted, &[], ""),
            ("snapsharepath", Converted, &[], ""),
            ("localtime", Converted, &[], ""),
            ("sscanf", Converted, &[], ""),
            ("snapprefix", Converted, &[], ""),
            ("snapdirseverywhere", Converted, &[], ""),
        ],
        ..module("shadow_copy2", Converted, "")
    },
    Module { prefix: "shadow", ..module("shadow_copy", Converted, "") },
    module("snapper", Converted, ""),
    module("readonly", Converted, ""),
    Module {
        options: &[
            ("success", Converted, &[], ""),
            ("facility", LeftOut, &["authpriv"], AUDIT_PLACE),
            ("priority", LeftOut, &["info"], AUDIT_PLACE),
            (
                "prefix",
                LeftOut,
                &[""],
                "lines of the log have fields of their own; see docs/audit.md",
            ),
            ("syslog", LeftOut, &["yes"], AUDIT_PLACE),
            ("failure", LeftOut, &["none"], "operations that fail are not in the log of shares"),
        ],
        ..module("full_audit", Converted, "")
    },
    module("audit", Converted, ""),
    module("extd_audit", Converted, ""),
    Module {
        options: &[
            ("prefix", LeftOut, &["user.dosstream."], "streams are in user.DosStream.NAME"),
            ("ext_prefix", LeftOut, &[""], "streams are in user.DosStream.NAME"),
            ("store_stream_type", LeftOut, &["yes"], "names of streams end in :$DATA"),
        ],
        ..module("streams_xattr", Harmless, "see streams")
    },
    module("worm", Opens, "files would stay writable after their grace period"),
    module("virusfilter", Opens, "files are not looked at by a virus scanner"),
    module("acl_tdb", Opens, LISTS),
    module("nfs4acl_xattr", Opens, LISTS),
    module("zfsacl", Opens, LISTS),
    module("gpfs", Opens, LISTS),
    module("afsacl", Opens, LISTS),
    module("aixacl", Opens, LISTS),
    module("aixacl2", Opens, LISTS),
    module("hpuxacl", Opens, LISTS),
    module("solarisacl", Opens, LISTS),
    module("tru64acl", Opens, LISTS),
    module("vxfs", Opens, LISTS),
    module("xattr_tdb", Opens, LISTS),
    module("posix_eadb", Opens, LISTS),
    module(
        "streams_depot",
        Opens,
        "its folder of streams would be an ordinary folder, which all users could read",
    ),
    Module { prefix: "ceph", ..module("ceph", Opens, ELSEWHERE) },
    module("ceph_new", Opens, ELSEWHERE),
    module("ceph_rgw", Opens, ELSEWHERE),
    module("glusterfs", Opens, ELSEWHERE),
    module("glusterfs_fuse", Harmless, FASTEST),
    module("media_harmony", Opens, SHOWN),
    module("unityed_media", Opens, SHOWN),
    module("expand_msdfs", LeftOut, "targets of links have no % substitutions"),
    module("dfs_samba4", LeftOut, "roots of domains are not supported"),
    module("delay_inject", LeftOut, TESTS),
    module("error_inject", LeftOut, TESTS),
    module("fake_acls", Opens, LISTS),
    module("fake_dfq", LeftOut, TESTS),
    module("not_implemented", LeftOut, TESTS),
    module("fake_perms", LeftOut, "permissions are told as they are"),
    module("cap", LeftOut, "names of Netatalk are not translated"),
    module("catia", LeftOut, "names are not translated"),
    module("ceph_snapshots", LeftOut, "see snapshots"),
    module("shell_snap", LeftOut, "see [share.snapshots]"),
    module("default_quota", LeftOut, "quotas are those of the file system"),
    module("offline", LeftOut, "files on tapes are not known"),
    module("tsmsm", LeftOut, "files on tapes are not known"),
    Module {
        options: &[
            ("repository", Converted, &[], ""),
            ("versions", Converted, &[], ""),
            ("maxsize", Converted, &[], ""),
            ("exclude", Converted, &[], ""),
            ("exclude_dir", Converted, &[], ""),
            ("keeptree", LeftOut, &["yes"], "files keep their folders in the bin"),
            ("minsize", LeftOut, &["0", "1"], "small files go to the bin too; empty ones do not"),
            ("noversions", LeftOut, &[""], "names that collide always get a number"),
            ("directory_mode", Stricter, &["0700"], "the bin of a user is for this user alone"),
            ("subdir_mode", Stricter, &["0700"], "the bin of a user is for this user alone"),
        ],
        ..module("recycle", Converted, "")
    },
    module("widelinks", Stricter, "links never lead out of a share"),
    Module {
        options: &[("manipulatesnapshots", LeftOut, &["no"], "see [share.snapshots]")],
        ..module("btrfs", Harmless, "reflinks are always used")
    },
    module("aio_fork", Harmless, FASTEST),
    module("aio_linux", Harmless, FASTEST),
    module("aio_pthread", Harmless, FASTEST),
    module("aio_ratelimit", LeftOut, "the speed of a share cannot be limited"),
    module("cacheprime", Harmless, FASTEST),
    module("commit", Harmless, "a flush always reaches the disk"),
    module("crossrename", LeftOut, "files cannot be renamed across file systems"),
    module("default", Harmless, FASTEST),
    module("dirsort", LeftOut, "listings have the order of the file system"),
    module("fileid", Harmless, "files are known by device and inode"),
    module("io_uring", Harmless, FASTEST),
    module("linux_xfs_sgid", Harmless, "new folders inherit set-group-ID"),
    module("posixacl", Harmless, "the kernel obeys POSIX access lists"),
    module("prealloc", Harmless, FASTEST),
    module("preopen", Harmless, FASTEST),
    module("readahead", Harmless, FASTEST),
    module("syncops", Harmless, "see continuous; a flush always reaches the disk"),
    module("time_audit", Harmless, "see log_level"),
];

/// Words before the colon of options that belong to no module of a share.
const OTHER_PREFIXES: &[&str] = &[
    "acl",
    "auth_audit",
    "dns",
    "drs",
    "dsdb",
    "elasticsearch",
    "eventlog",
    "fss",
    "gensec",
    "gse",
    "idmapconfig",
    "idmap_ldb",
    "kccsrv",
    "kdc",
    "krb5",
    "ldapsam",
    "ldb",
    "lsarpc",
    "nbtd",
    "net",
    "netlogon",
    // Modules whose names begin with nfs4 convert access lists for NFS; none of them is supported.
    "nfs4",
    "nss",
    "ntlmssp",
    "ntlmssp_client",
    "ntlmssp_server",
    "objectclass",
    "printer",
    "queue",
    "readdir_attr",
    "rpc_daemon",
    "rpc_server",
    "rpcd",
    "samr",
    "share",
    "smb3sharecap",
    "smbd",
    "spnego",
    "spoolss",
    "svcctl",
    "tombstone",
    "torture",
    "vfs",
    "winbind",
    "winsdb",
    "wreplsrv",
];

/// The module of a name, as `vfs objects` has it.
pub(super) fn find(name: &str) -> Option<&'static Module> {
    // A name `module:instance` means the module; a path means the module whose file it names.
    let name = name.split(':').next().unwrap_or(name);
    MODULES.iter().find(|module| module.name.eq_ignore_ascii_case(name))
}

/// The effect of an option `module:name`, and the reason. `loaded` tells whether a module is in
/// `vfs objects`; options of other modules have no effect in Samba either.
pub(super) fn option(
    name: &str,
    value: &str,
    loaded: impl Fn(&str) -> bool,
) -> (Effect, &'static str) {
    let (prefix, key) = name.split_once(':').unwrap_or((name, ""));
    let prefix = if prefix.starts_with("idmapconfig") { "idmapconfig" } else { prefix };
    let mut is_known = false;
    for module in MODULES.iter().filter(|module| module.prefix == prefix) {
        is_known = true;
        if !loaded(module.name) {
            continue;
        }
        if let Some((_, effect, unless, why)) = module.options.iter().find(|(k, ..)| *k == key) {
            let value = value.to_ascii_lowercase();
            let is_default = |unless: &&&str| {
                **unless == value || truth(unless).is_some() && truth(unless) == truth(&value)
            };
            return if unless.iter().any(|unless| is_default(&unless)) {
                (Harmless, "as always with Frevo")
            } else {
                (*effect, why)
            };
        }
        return match module.effect {
            Converted => (Harmless, "Frevo has one way for this"),
            effect => (effect, module.why),
        };
    }
    if is_known {
        (Harmless, "the module is not in vfs objects")
    } else if OTHER_PREFIXES.contains(&prefix) {
        (Harmless, "for parts of Samba that Frevo does not have")
    } else {
        (Opens, "Frevo does not know the option, and whether it restricts users")
    }
}

/// True for an option of a module that is known, loaded or not.
pub(super) fn is_known(name: &str) -> bool {
    let prefix = name.split(':').next().unwrap_or(name);
    prefix.starts_with("idmapconfig")
        || MODULES.iter().any(|module| module.prefix == prefix)
        || OTHER_PREFIXES.contains(&prefix)
}

/// All modules, for tests.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static Module> {
    MODULES.iter()
}
