use frevo_config::{Config, DialectName, EncryptionChoice, Mode, RunAsChoice, SigningChoice, Who};

use super::modules;
use super::options::{self, Effect};
use super::report::{Report, Weight};
use super::*;

/// The configuration, its text, and the report.
fn import_with(text: &str, accepted: &[&str]) -> (Config, String, Report) {
    let conf = SmbConf::parse(text).unwrap();
    let accepted: Vec<String> = accepted.iter().map(ToString::to_string).collect();
    let (toml, report) = convert(&conf, &accepted, &HostFacts::default());
    let config = Config::parse(&toml).unwrap_or_else(|faults| panic!("{faults:?} in:\n{toml}"));
    (config, toml, report)
}

fn import(text: &str) -> (Config, String, String) {
    let (config, toml, report) = import_with(text, &[]);
    (config, toml, report.lines().join("\n"))
}

fn words(listed: &[Who]) -> Vec<&str> {
    listed.iter().map(Who::as_str).collect()
}

/// True when the conversion shares [x] without having been refused.
fn is_shared(text: &str) -> bool {
    let (config, _, report) = import_with(text, &[]);
    !report.is_refused() && config.shares.iter().any(|share| share.name.get_ref().as_str() == "x")
}

const TYPICAL: &str = r#"# Sample
[global]
   workgroup = LAB
   netbios name = nas
   server string = the "big" box
   interfaces = lo 192.0.2.1/24 "2001:db8::1;speed=1000" eth*
   bind interfaces only = yes
   smb ports = 445 139
   Server  Min  Protocol = SMB2_10
   server signing = auto
   smb encrypt = desired
   create mask = 0664
   log level = 1 \
      auth:3
   fruit:metadata = netatalk

[Photos]
   comment = Pictures
   path = /srv/photos
   writeable = yes
   browseable = no
   valid users = ann, "bob" NAS\carl
   directory mask = 2775
   vfs objects = catia fruit streams_xattr
   guest ok = yes
   follow symlinks = no
; a comment
[docs]
   path = /srv/docs
   smb encrypt = required
   case sensitive = yes
"#;

#[test]
fn a_typical_file_is_taken_over() {
    let (config, _, report) = import(TYPICAL);
    let server = &config.server;
    assert_eq!(server.name.as_ref().unwrap().as_str(), "NAS");
    assert_eq!(server.comment.as_deref(), Some("the \"big\" box"));
    assert_eq!(server.workgroup.as_deref(), Some("LAB"));
    let listen: Vec<String> = server.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["lo:445", "192.0.2.1:445", "[2001:db8::1]:445"]);
    assert_eq!(server.min_dialect, Some(DialectName::Smb21));
    assert_eq!(server.signing, Some(SigningChoice::Offered));
    assert_eq!(server.encryption, Some(EncryptionChoice::Offered));

    let photos = &config.shares[0];
    assert_eq!(photos.name.get_ref().as_str(), "Photos");
    assert!(!photos.read_only && photos.hidden && !photos.encrypt && !photos.follow_symlinks);
    assert_eq!(words(&photos.allow), ["ann", "bob", "carl"]);
    assert_eq!(photos.file_mode, Some(Mode(0o664)));
    assert_eq!(photos.directory_mode, Some(Mode(0o2775)));

    // These are Samba's defaults: shares are read-only, and files and directories get these modes.
    let docs = &config.shares[1];
    assert!(docs.read_only && docs.encrypt && docs.case_sensitive && docs.allow.is_empty());
    assert_eq!(docs.directory_mode, Some(Mode(0o755)));

    for line in [
        "[global] line 6: interfaces = lo 192.0.2.1/24 \"2001:db8::1;speed=1000\" eth*: eth* is neither",
        "[global] line 13: log level = 1       auth:3: the log goes to",
        "[global] line 8: smb ports = 445 139: 139 is not supported",
        "[global] line 15: fruit:metadata = netatalk: Finder information is in streams",
        "[Photos] line 25: guest ok = yes: guests are not supported",
        "[Photos] line 24: vfs objects = catia fruit streams_xattr: catia: names are not translated",
    ] {
        assert!(report.contains(line), "{line} not in\n{report}");
    }
    assert!(!report.contains("create mask"), "{report}");
}

/// The first address of a network stands for it, as in the interfaces of Debian's smb.conf.
#[test]
fn networks_are_listened_on() {
    let (config, ..) = import(
        "[global]\nbind interfaces only = yes\n\
         interfaces = 127.0.0.0/8 eth0 192.0.2.0/255.255.255.0 203.0.113.9/24 2001:db8::/32\n",
    );
    let listen: Vec<String> = config.server.listen.iter().map(ToString::to_string).collect();
    let wanted = ["127.0.0.0/8", "eth0", "192.0.2.0/24", "203.0.113.9", "2001:db8::/32"];
    assert_eq!(listen, wanted);
}

/// Each name of Samba 4.22 is in the table of options, or belongs to a module that is known.
#[test]
fn every_option_of_samba_is_known() {
    let names = include_str!("fixtures/options-4.22.txt");
    assert!(names.lines().count() > 500);
    for line in names.lines() {
        let (_, name) = line.split_once(' ').unwrap();
        let squeezed = words::squeezed(name);
        let is_known = match options::canonical(&squeezed) {
            Some((name, _)) => {
                options::of_share(name).is_some() || options::of_global(name).is_some()
            }
            None => name.contains(':') && modules::is_known(&squeezed),
        };
        assert!(is_known, "{name}");
    }
}

/// Each option that restricts keeps its share, or everything, from being converted; with a value
/// that restricts nothing, and for each other option, the share is converted.
#[test]
fn no_option_opens_a_share() {
    let names = include_str!("fixtures/options-4.22.txt");
    for name in names.lines().filter_map(|line| line.split_once(' ')).map(|(_, name)| name) {
        let Some((known, _)) = options::canonical(&words::squeezed(name)) else { continue };
        let row = options::of_share(known).or_else(|| options::of_global(known)).unwrap();
        let is_global = options::of_share(known).is_none();
        let text = |value: &str| {
            if is_global {
                format!("[global]\n{name} = {value}\n[x]\npath = /x\n")
            } else {
                format!("[global]\n[x]\npath = /x\n{name} = {value}\n")
            }
        };
        match row.effect {
            Effect::Opens => {
                assert!(!is_shared(&text("strange")), "{name} is lost");
                // An option in [global] applies to all shares, so a strange value there also keeps
                // the share from being converted.
                let all = format!("[global]\n{name} = strange\n[x]\npath = /x\n");
                assert!(!is_shared(&all), "{name} of [global] is lost");
                for value in row.harmless_values() {
                    assert!(is_shared(&text(value)), "{name} = {value} restricts nothing");
                }
            }
            Effect::Converted => {}
            _ => assert!(is_shared(&text("strange")), "{name} restricts nothing"),
        }
    }
    for unknown in ["no such thing = 1", "nosuch:option = 1"] {
        assert!(!is_shared(&format!("[x]\npath = /x\n{unknown}\n")), "{unknown}");
        assert!(!is_shared(&format!("[global]\n{unknown}\n[x]\npath = /x\n")), "{unknown}");
    }
}

#[test]
fn no_module_opens_a_share() {
    for module in modules::all() {
        let name = module.name;
        let own = format!("[x]\npath = /x\nvfs objects = streams_xattr {name}\n");
        let of_all = format!("[global]\nvfs object = {name}\n[x]\npath = /x\n");
        for text in [own, of_all] {
            assert_eq!(is_shared(&text), module.effect != Effect::Opens, "{name}");
        }
    }
    for unknown in ["nosuch", "/usr/lib/samba/vfs/mine.so"] {
        assert!(!is_shared(&format!("[x]\npath = /x\nvfs objects = {unknown}\n")), "{unknown}");
    }
    // The modules `readonly` and `worm` forbid writing, so the share must not become writable in
    // Frevo.
    let (config, ..) = import("[x]\npath=/x\nread only=no\nwrite list=ann\nvfs objects=readonly\n");
    assert!(config.shares[0].read_only && config.shares[0].write_list.is_empty());
    let worm = "[x]\npath=/x\nread only=no\nvfs objects=worm\nworm:grace_period=300\n";
    assert!(!is_shared(worm));
    let acl = "vfs objects = acl_xattr\n[x]\npath=/x\n";
    assert!(!is_shared(&format!("[global]\nacl_xattr:ignore system acls = yes\n{acl}")));
    assert!(!is_shared(&format!("[global]\nacl_xattr:security_acl_name = user.other\n{acl}")));
    assert!(is_shared(&format!("[global]\nacl_xattr:ignore system acls = no\n{acl}")));
    // In Samba an option has no effect if its module is not loaded, so it does not keep the share
    // from being converted.
    assert!(is_shared("[x]\npath=/x\nacl_xattr:ignore system acls = yes\n"));
}

#[test]
fn nothing_becomes_more_open() {
    for narrowing in [
        "valid users = %U",
        "valid users = &netgroup",
        "valid users = OTHER\\ann",
        "invalid users = %U",
        "write list = %G",
        "hosts allow = pc.example.com",
        "hosts deny = nas.example.com",
        "hosts deny = ALL EXCEPT pc.example.com",
        "hosts allow = 192.0.2.0/255.0.255.0",
        "hosts allow = @netgroup",
        "veto files = /%U.key/",
        "dont descend = /proc",
        "dontdescend = /proc",
        "force user = %m",
        "force group = +staff",
        "create mask = rw",
        "copy = other",
        "available = no",
        "inherit permissions = yes",
        "preexec close = yes",
        "path = /srv/%m",
    ] {
        let (config, toml, report) = import(&format!("[x]\npath = /x\n{narrowing}\n"));
        assert!(config.shares.is_empty(), "{narrowing}");
        assert!(toml.contains("# [[share]]\n# name = \"x\"\n"), "{toml}");
        assert!(toml.contains("# Not shared: ") && report.contains("Not shared"), "{report}");
        // A parameter in [global] applies to all shares, so the share [x] is refused in this case,
        // too.
        if !narrowing.starts_with("copy") && !narrowing.starts_with("path") {
            assert!(!is_shared(&format!("[global]\n{narrowing}\n[x]\npath = /x\n")), "{narrowing}");
        }
    }
    for refused in [
        "include = /etc/samba/more.conf",
        "config file = /etc/samba/%m.conf",
        "config backend = registry",
        "root directory = /srv",
        "obey pam restrictions = yes",
        "username map script = /bin/map",
        "username map = maps/%m",
        "ntlm auth = disabled",
        "server smb3 encryption algorithms = AES-512",
        "bind interfaces only = yes\ninterfaces = eth*",
        "server smb transports = quic",
    ] {
        assert!(!is_shared(&format!("[global]\n{refused}\n[x]\npath = /x\n")), "{refused}");
    }
    // In smb.conf a default below a share applies to later shares only; such a text is not
    // converted.
    assert!(!is_shared("[x]\npath=/x\n[global]\nread only = no\n"));
    for harmless in ["max connections = 0", "hosts allow = ALL", "hide unreadable = no"] {
        assert!(is_shared(&format!("[x]\npath = /x\n{harmless}\n")), "{harmless}");
    }
    let (config, ..) = import("[global]\nhide unreadable = yes\n[x]\npath = /x\n");
    assert!(config.shares[0].hide_unreadable && !config.shares[0].inherited_as_set);
    let (config, ..) = import("[x]\npath = /x\nacl flag inherited canonicalization = no\n");
    assert!(config.shares[0].inherited_as_set);
}

#[test]
fn what_restricts_can_be_accepted() {
    let text = "[global]\nobey pam restrictions = yes\n[x]\npath = /x\nvfs objects = worm\n\
                hide special files = yes\n";
    let (config, _, report) =
        import_with(text, &["Obey PAM restrictions", "worm", "hidespecialfiles"]);
    assert!(!report.is_refused() && config.shares.len() == 1, "{:?}", report.lines());
    assert_eq!(report.of(Weight::LeftOut).filter(|line| line.ends_with(": accepted")).count(), 3);
    let (config, _, report) = import_with(text, &["worm"]);
    assert!(report.is_refused() && config.shares.is_empty());
}

#[test]
fn who_may_do_what_is_taken_over() {
    let (config, toml, report) = import(
        "[global]\nhosts allow = 192.0.2. 127.\nusername map = /etc/samba/users\n[x]\npath = /x\nread only = yes\n\
         valid users = @staff +it bob\ninvalid users = carl\nread list = bob\n\
         write list = @it\n",
    );
    let share = config.shares.first().unwrap_or_else(|| panic!("{report}"));
    assert_eq!(words(&share.allow), ["@staff", "@it", "bob"]);
    assert_eq!(words(&share.deny), ["carl"]);
    assert_eq!((words(&share.read_list), words(&share.write_list)), (vec!["bob"], vec!["@it"]));
    let hosts: Vec<String> = share.hosts_allow.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["192.0.2.0/24", "127.0.0.0/8"], "{toml}");
    assert!(share.read_only && !report.contains("[x]"), "{report}");
    assert_eq!(config.server.user_map_file, Some("/etc/samba/users".into()));
    assert_eq!(share.run_as, Some(RunAsChoice::User));
    let (config, _, report) = import(
        "[x]\npath = /x\nforce user = media\nforce group = media\n[y]\npath = /y\nvalid users = %S\n",
    );
    let forced = |name: &Option<toml::Spanned<String>>| name.as_ref().map(|n| n.get_ref().clone());
    let [x, y] = &config.shares[..] else { panic!("{report}") };
    assert_eq!((x.run_as, forced(&x.force_user)), (None, Some("media".into())));
    assert_eq!((forced(&x.force_group), words(&y.allow)), (Some("media".into()), vec!["y"]));
}

/// Whoever uses a guest share acts as the guest, not with rights of its own.
#[test]
fn users_of_guest_shares_have_the_guests_rights() {
    let (config, _, report) = import(
        "[global]\nguest account = visitor\nmap to guest = bad user\n[x]\npath=/x\nguest ok=yes\n\
         guest only=yes\n[y]\npath=/y\nonly guest=yes\n",
    );
    let [x, y] = &config.shares[..] else { panic!("{report}") };
    assert_eq!(x.force_user.as_ref().map(|user| user.get_ref().as_str()), Some("visitor"));
    assert_eq!(y.run_as, Some(RunAsChoice::User));
    assert!(report.contains("map to guest = bad user: guests are not supported"), "{report}");
}

/// Rules for addresses of [global] hold for shares with rules of their own, too.
#[test]
fn hosts_of_the_server_and_of_a_share_both_count() {
    let (config, _, report) = import(
        "[global]\nhosts allow = 192.0.2.\n[x]\npath=/x\nhosts allow = 192.0.2.7 203.0.113.1\n\
         [y]\npath=/y\nhosts deny = ALL EXCEPT 192.0.2.7\n[z]\npath=/z\nhosts deny=192.0.2.9\n",
    );
    let shown = |index: usize| {
        let share: &frevo_config::ShareSection = &config.shares[index];
        let list = |networks: &[frevo_net::IpNetwork]| {
            networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
        };
        (list(&share.hosts_allow), list(&share.hosts_deny))
    };
    assert_eq!(shown(0), (String::from("192.0.2.7/32"), String::new()), "{report}");
    assert_eq!(shown(1).0, "192.0.2.0/24 192.0.2.7/32", "{report}");
    // smbd checks the lists of [global] and then those of the share. In each of the two checks an
    // allowed host is admitted, even if it is also denied.
    assert_eq!(shown(2), (String::from("192.0.2.0/24"), String::new()), "{report}");
    let (config, _, report) = import(
        "[global]\nhosts allow = 192.0.2.7\nhosts deny = 192.0.2.\n[x]\npath=/x\n\
         hosts allow = 192.0.2.9\nhosts deny = 192.0.2.\n",
    );
    assert!(config.shares.is_empty());
    assert!(report.contains("the lists of [global] and of the share cannot be joined"));
}

#[test]
fn options_of_modules_that_exist_here_are_taken_over() {
    let (config, toml, report) = import(
        "[global]\nfruit:model = MacPro\n[tm]\npath=/tm\nread only=no\nvfs objects=fruit streams_xattr\n\
         fruit:time machine = yes\nfruit:time machine max size = 2T\n\
         [a]\npath=/a\nvfs objects=shadow_copy2\nshadow:snapdir=.zfs/snapshot\n\
         shadow:format=auto-%Y-%m-%d\n\
         [b]\npath=/srv/b\nvfs objects=shadow_copy2\nshadow:basedir=/srv\nshadow:snapdir=/snap\n\
         [c]\npath=/c\nvfs objects=snapper\n\
         [d]\npath=/d\nvfs objects=shadow_copy2\nshadow:localtime=yes\n\
         [e]\npath=/e\nvfs objects=full_audit\nfull_audit:success=renameat unlinkat\n",
    );
    assert_eq!(config.server.model.as_deref(), Some("MacPro"));
    let share = |name: &str| config.shares.iter().find(|s| s.name.get_ref().as_str() == name);
    let tm = share("tm").unwrap();
    assert!(tm.time_machine && tm.time_machine_max_size.is_some_and(|size| size.0 == 2 << 40));
    for line in [
        "snapshots = \".zfs/snapshot/auto-%Y-%m-%d\"",
        "snapshots = \"/snap/@GMT-%Y.%m.%d-%H.%M.%S/b\"",
        "snapshots = \".snapshots/%N/snapshot\"",
        "audit = [\"rename\", \"delete\"]",
        "[audit]\nsyslog = true",
    ] {
        assert!(toml.contains(line), "{line} not in\n{toml}");
    }
    assert!(share("d").unwrap().snapshots.is_none());
    assert!(
        report.contains("shadow:localtime = yes: times in names of snapshots are UTC"),
        "{report}"
    );
}

#[test]
fn recycle_bins_are_taken_over() {
    let (config, toml, report) = import(
        "[a]\npath=/a\nread only=no\nvfs objects=recycle\nrecycle:repository=.recycle/%U\n\
         recycle:keeptree=yes\n\
         recycle:versions=yes\nrecycle:maxsize=1000\nrecycle:exclude=*.tmp|~$*\n\
         recycle:exclude_dir=/cache /a/b\n\
         [b]\npath=/b\nread only=no\nvfs objects=recycle\nrecycle:repository=trash\n\
         [c]\npath=/c\nread only=no\nvfs objects=recycle\nrecycle:repository=/elsewhere/%U\n\
         [d]\npath=/d\nread only=no\nvfs objects=recycle fruit\nfruit:time machine=yes\n\
         [e]\npath=/e\nread only=no\nvfs objects=recycle\nveto files=/.*/\n\
         [g]\npath=/g\nvfs objects=recycle\n\
         [f]\npath=/f\nrecycle:versions=yes\n",
    );
    for line in [
        "recycle = { keep_days = 0, max_file_size = 1000, exclude = [\"*.tmp\", \"~$*\", \"cache\"] }",
        "recycle = { keep_days = 0, folder = \"trash\", versions = false }",
    ] {
        assert!(toml.contains(line), "{line} not in\n{toml}");
    }
    let with: Vec<_> = config.shares.iter().filter(|share| share.recycle.is_some()).collect();
    assert_eq!(with.len(), 2, "{toml}");
    for word in [
        "/a/b is a path",
        "each user has a bin (trash/USER)",
        "/elsewhere/%U: recycle: the bin must be one folder",
        "backups of macOS cannot have a recycle bin",
    ] {
        assert!(report.contains(word), "{word} not in\n{report}");
    }
}

#[test]
fn what_cannot_be_shared_is_said() {
    let (config, _, report) = import(
        "[printers]\npath=/x\n[print$]\n[a]\n[b]\npath=/home/%m\n[c]\npath=x\n\
         [bad/name]\npath=/x\n[spool]\npath=/x\nprintable = yes\n",
    );
    assert!(config.shares.is_empty());
    for line in [
        "[printers] printing is not supported",
        "[a] the path is missing",
        "[b] the path /home/%m",
        "[c] the path x",
        "[bad/name] the share name",
        "[spool] it is a printer",
    ] {
        assert!(report.contains(&format!("  {line}")), "{line} not in\n{report}");
    }
}

#[test]
fn home_folders_and_folders_by_user_are_taken_over() {
    let (config, toml, report) = import(
        "[homes]\nread only = no\nvalid users = %S\nbrowseable = no\n\
         [files]\npath=/srv/%U/files\nmax connections = 5\n[homes2]\npath=/srv/%H\n",
    );
    let [homes, files] = &config.shares[..] else { panic!("{toml}\n{report}") };
    assert_eq!(homes.name.get_ref().as_str(), "{user}");
    assert_eq!(homes.path.get_ref(), Path::new("/home/{user}"));
    assert!(homes.allow.is_empty() && homes.hidden && !homes.read_only);
    assert_eq!(files.path.get_ref(), Path::new("/srv/{user}/files"));
    assert_eq!(files.max_connections, Some(5));
    assert!(report.contains("[homes] home folders are taken to be /home/USER"), "{report}");
    let (config, ..) = import("[homes]\npath = /data/%S\nvalid users = @staff\n");
    assert_eq!(config.shares[0].path.get_ref(), Path::new("/data/{user}"));
    assert_eq!(words(&config.shares[0].allow), ["@staff"]);
}

#[test]
fn the_last_word_counts() {
    let (config, ..) = import("[a]\npath=/a\nread only=no\n[b]\npath=/b\n[A]\nwriteable = no\n");
    let names: Vec<(&str, bool)> =
        config.shares.iter().map(|s| (s.name.get_ref().as_str(), s.read_only)).collect();
    assert_eq!(names, [("b", true), ("a", true)]);
}

#[test]
fn smb1_is_not_taken_over() {
    let (config, _, report) = import("[global]\nmin protocol = NT1\nserver signing = disabled\n");
    assert_eq!(config.server.min_dialect, None);
    assert_eq!(config.server.signing, None);
    assert!(report.contains("SMB1 is not supported"));
    assert!(report.contains("signing cannot be switched off"));
}

#[test]
fn a_line_that_is_no_smb_conf_is_named() {
    assert_eq!(SmbConf::parse("[a]\nb = 1\nnonsense\n").unwrap_err().line, 3);
    assert_eq!(SmbConf::parse("[a\n").unwrap_err().line, 1);
}

/// Found by the fuzzer: TOML refuses control characters in comments.
#[test]
fn a_share_that_is_left_out_is_a_comment_whatever_its_name_holds() {
    let (config, _, report) = import("[a\u{8}b]\npath = c\u{c}d\re\n");
    assert!(report.contains("Not shared (") && config.shares.is_empty(), "{report}");
}

/// `frevo check` finds no fault of the conversion in what Samba accepts.
#[test]
fn what_is_imported_does_not_contradict_itself() {
    let shares = [
        "read only=no\nwrite list=ann @it",
        "read only=no\nwrite list=ann\nread list=ann",
        "read only=no\nwrite list=ann\nread list=ann bob",
        "write list=ann\nread list=ann",
        "fruit:time machine=yes\nvfs objects=fruit streams_xattr",
        "fruit:time machine=yes\nvfs objects=fruit\nwrite list=ann",
        "vfs objects=recycle",
        "read only=no\nvfs objects=recycle fruit\nfruit:time machine=yes",
        "vfs objects=full_audit\nfull_audit:success=unlinkat",
        "smb encrypt=required",
    ];
    let globals = "[global]\nfruit:time machine max size=1T\n";
    let all: Vec<String> =
        shares.iter().enumerate().map(|(n, keys)| format!("[s{n}]\npath=/{n}\n{keys}\n")).collect();
    for text in [format!("{globals}{}", all.concat()), include_str!("fixtures/company.conf").into()]
    {
        let (config, toml, _) = import_with(&text, &["obey pam restrictions"]);
        assert!(config.shares.len() >= shares.len());
        for share in &config.shares {
            let found = crate::config_contradictions::of_share(share, &config);
            assert!(found.is_empty(), "{found:?} in\n{toml}");
        }
    }
    let (config, _, report) = import(&format!("{globals}{}", all.concat()));
    let lists =
        |n: usize| (words(&config.shares[n].read_list), words(&config.shares[n].write_list));
    assert_eq!(lists(0), (vec![], vec![]));
    assert_eq!(lists(1), (vec![], vec![]));
    assert_eq!(lists(2), (vec!["bob"], vec!["ann"]));
    assert_eq!(lists(3), (vec![], vec!["ann"]));
    assert!(report.contains("write list = ann @it: everybody may write to the share"), "{report}");
}

/// A whole server's configuration gives this frevo.toml and this report, sorted by weight. With
/// WRITE_FIXTURES in the environment the test writes them, to be read after a change.
#[test]
fn the_configuration_of_a_company() {
    let text = include_str!("fixtures/company.conf");
    let (_, toml, report) = import_with(text, &["obey pam restrictions"]);
    let report = report.lines().join("\n") + "\n";
    if std::env::var_os("WRITE_FIXTURES").is_some() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/import/fixtures");
        std::fs::write(format!("{folder}/company.toml"), &toml).unwrap();
        std::fs::write(format!("{folder}/company.report"), &report).unwrap();
    }
    for (found, wanted, name) in [
        (toml, include_str!("fixtures/company.toml"), "company.toml"),
        (report, include_str!("fixtures/company.report"), "company.report"),
    ] {
        for (number, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
            assert_eq!(found, wanted, "{name}:{}", number + 1);
        }
        assert_eq!(found.lines().count(), wanted.lines().count(), "{name}");
    }
}

/// A member of a domain: its names keep their domains, and its users can log on.
#[test]
fn a_member_of_a_domain_stays_one() {
    let text = "[global]\nnetbios name = FILES\nworkgroup = SAMDOM\nsecurity = ADS\n\
                realm = SAMDOM.EXAMPLE.COM\nkerberos method = secrets and keytab\n\
                idmap config * : backend = tdb\nidmap config * : range = 3000-7999\n\
                idmap config SAMDOM : backend = rid\nidmap config SAMDOM : range = 100000 - 199999\n\
                idmap config OTHER : backend = ad\nidmap config OTHER : range = 200000-299999\n\
                [x]\npath = /x\nvalid users = SAMDOM\\ann @\"SAMDOM\\staff\" +TRUSTED\\it FILES\\bob carl\n\
                invalid users = @interns root\nwrite list = +%D%wstaff\n\
                [homes]\nread only = no\nvalid users = %S, %D%w%S\n";
    let (config, toml, report) = import(text);
    let [share, homes] = &config.shares[..] else { panic!("{report}") };
    let allowed = ["SAMDOM\\ann", "@SAMDOM\\staff", "@TRUSTED\\it", "bob", "SAMDOM\\carl"];
    assert_eq!(words(&share.allow), allowed);
    assert_eq!(words(&share.deny), ["@interns", "@SAMDOM\\interns", "root"]);
    assert_eq!(words(&share.write_list), ["@SAMDOM\\staff"]);
    assert!(homes.allow.is_empty() && report.contains("carl is taken for 'SAMDOM\\carl'"));
    let domains = config.server.winbind_domains.as_ref().map(|domains| domains.get_ref().clone());
    assert_eq!(domains.unwrap(), ["SAMDOM", "SAMDOM.EXAMPLE.COM"]);
    assert!(config.kerberos.keytab.is_none() && report.contains("until there is a keytab"));
    assert!(config.idmaps.is_empty() && toml.contains("# range = \"100000-199999\""), "{toml}");
    assert!(report.contains("the SID of the domain is not known here"), "{report}");
    assert!(
        report.contains("OTHER : backend = ad: Frevo asks the host's name service"),
        "{report}"
    );
    for share in &config.shares {
        let found = crate::config_contradictions::of_share(share, &config);
        assert!(found.is_empty(), "{found:?}");
    }

    let host = HostFacts {
        domain_sid: Some("S-1-5-21-7-8-9".parse().unwrap()),
        keytab: Some("/etc/krb5.keytab".into()),
        ..HostFacts::default()
    };
    let (toml, _) = convert(&SmbConf::parse(text).unwrap(), &[], &host);
    let config = Config::parse(&toml).unwrap();
    assert_eq!(config.kerberos.keytab.unwrap().get_ref(), Path::new("/etc/krb5.keytab"));
    let [idmap] = &config.idmaps[..] else { panic!("{toml}") };
    assert_eq!(idmap.domain_sid.get_ref().to_string(), "S-1-5-21-7-8-9");
    assert_eq!((idmap.range.get_ref().first, idmap.range.get_ref().last), (100_000, 199_999));
}

/// A home folder is its user's, in all the words that distributions have for that.
#[test]
fn home_folders_are_their_users() {
    for users in ["%S", "%S, %D%w%S", "%D\\%S", "%U", "WORKGROUP\\%S"] {
        let (config, _, report) = import(&format!("[homes]\nvalid users = {users}\n"));
        assert!(config.shares.first().is_some_and(|share| share.allow.is_empty()), "{report}");
    }
    let (config, _, report) = import("[homes]\nvalid users = %S @admins\n");
    assert!(config.shares[0].allow.is_empty(), "{report}");
    assert!(report.contains("only its own user reaches a home folder"), "{report}");
    // These lists take rights away. If one cannot be converted, the share is left out, because
    // without the list it would admit more users.
    for list in ["invalid users = %U", "read list = %S"] {
        let (config, ..) = import(&format!("[homes]\n{list}\n"));
        assert!(config.shares.is_empty(), "{list}");
    }
    let (config, ..) = import("[profiles]\npath = %H\n[x]\npath=/x\nforce user = %U\n");
    assert_eq!(config.shares[0].path.get_ref(), Path::new("/home/{user}"));
    assert_eq!(config.shares[1].run_as, Some(RunAsChoice::User));
}

/// Nothing is written that `frevo check` refuses.
#[test]
fn contradictions_of_the_smb_conf_do_not_go_on() {
    for (text, min, max) in [
        ("protocol = SMB2\n", None, None),
        ("max protocol = SMB2_02\nmin protocol = SMB2\n", Some(DialectName::Smb21), None),
        ("max protocol = SMB3_00\nmin protocol = SMB3_11\n", Some(DialectName::Smb311), None),
        ("max protocol = SMB3\n", None, Some(DialectName::Smb311)),
    ] {
        let (config, _, report) =
            import(&format!("[global]\n{text}[x]\npath=/x\nsmb encrypt=required\n"));
        assert_eq!((config.server.min_dialect, config.server.max_dialect), (min, max), "{text}");
        let found = crate::config_contradictions::of_share(&config.shares[0], &config);
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(report.contains("clients may use newer dialects"), max.is_none(), "{report}");
    }
    let (config, ..) = import("[x]\npath=/x\nvalid users=ann bob\ninvalid users=Ann\n");
    assert_eq!(
        (words(&config.shares[0].allow), words(&config.shares[0].deny)),
        (vec!["bob"], vec!["Ann"])
    );
    for nobody in ["valid users=ann\ninvalid users=ann", "smb encrypt=required"] {
        let (config, ..) = import(&format!("[global]\nsmb encrypt=off\n[x]\npath=/x\n{nobody}\n"));
        assert!(config.shares.is_empty(), "{nobody}");
    }
}

#[test]
fn forced_modes_are_modes() {
    let (config, _, report) = import(
        "[a]\npath=/a\nforce create mode=0664\nforce directory mode=2775\n\
         [b]\npath=/b\ncreate mask=0600\nforce create mode=0111\n\
         [c]\npath=/c\nforce create mode=0\nforce directory mode=000\n",
    );
    let modes: Vec<_> =
        config.shares.iter().map(|share| (share.file_mode, share.directory_mode)).collect();
    let mode = |bits| Some(Mode(bits));
    assert_eq!(
        modes,
        [(mode(0o764), mode(0o2775)), (mode(0o711), mode(0o755)), (mode(0o744), mode(0o755))]
    );
    for line in [
        "[a] line 3: force create mode = 0664: see file_mode; Linux clients",
        "[a] line 4: force directory mode = 2775: see directory_mode; for new files of the folder's group",
        "[b] line 8: force create mode = 0111: see file_mode; the bits 0111 are not set",
    ] {
        assert!(report.contains(line), "{line} not in {report}");
    }
    assert!(!report.contains("[c]"), "{report}");
}

/// Files of distributions pass, with the host's own rules.
#[test]
fn stock_files_pass() {
    let debian = "[global]\nworkgroup = WORKGROUP\nlog file = /var/log/samba/log.%m\n\
                  server role = standalone server\nobey pam restrictions = yes\n\
                  unix password sync = yes\nmap to guest = bad user\nusershare allow guests = yes\n\
                  [homes]\nbrowseable = no\nread only = yes\ncreate mask = 0700\nvalid users = %S\n\
                  [printers]\nprintable = yes\npath = /var/tmp\n[print$]\npath = /var/lib/samba/printers\n";
    let of = |text: &str, host: &HostFacts| {
        let (toml, report) = convert(&SmbConf::parse(text).unwrap(), &[], host);
        let shares = Config::parse(&toml).unwrap().shares.len();
        ((!report.is_refused()).then_some(shares), report.lines().join("\n"))
    };
    let usual = HostFacts { pam: pam::Pam::Plain, ..HostFacts::default() };
    assert_eq!(of(debian, &usual).0, Some(1), "{}", of(debian, &usual).1);
    // If the PAM rules are unknown, or refuse users, nothing is converted.
    assert_eq!(of(debian, &HostFacts::default()).0, None);
    let strict = pam::Pam::Restricting("pam_access.so".into());
    let (shares, report) = of(debian, &HostFacts { pam: strict, ..HostFacts::default() });
    assert!(shares.is_none() && report.contains("pam_access.so in /etc/pam.d/samba"), "{report}");

    // The host's Samba ignores options that it does not know, so they restrict nobody and the
    // conversion continues.
    let unknown = "[global]\nNT-domain = x\n[a]\npath = /a\nvallid users = ann\n";
    assert_eq!(of(unknown, &HostFacts::default()).0, None);
    let ignored = ["nt-domain", "vallidusers"].map(str::to_owned).into();
    let (shares, report) = of(unknown, &HostFacts { ignored, ..HostFacts::default() });
    assert_eq!(shares, Some(1), "{report}");
    assert_eq!(report.matches("does not know the option either").count(), 2, "{report}");

    let map = "[global]\nusername map = /etc/samba/map\n[a]\npath = /a\n";
    use host_facts::UserMapFile::{Faulty, Missing};
    let with = |user_map| of(map, &HostFacts { user_map, ..HostFacts::default() });
    assert!(with(Missing).0.is_some() && with(Missing).1.contains("there is no such file here"));
    assert_eq!(with(Faulty("line 1: *".into())).0, None);
}

/// Files that are included are part of the smb.conf, where they can be read.
#[test]
fn included_files_count() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
    let more = "[global]\nhosts allow = 192.0.2.\n[y]\npath=/y\ninclude = INNER\n";
    std::fs::write(at("more"), more.replace("INNER", &at("inner"))).unwrap();
    std::fs::write(at("inner"), "valid users = ann\n").unwrap();
    let text =
        format!("[global]\ninclude = {}\n[x]\npath=/x\ninclude = {}\n", at("more"), at("none"));
    let conf = parse(&text, Path::new("smb.conf"), Origin::ThisHost).unwrap();
    let (toml, report) = convert(&conf, &[], &HostFacts::default());
    let config = Config::parse(&toml).unwrap();
    let [y, x] = &config.shares[..] else { panic!("{toml}") };
    assert_eq!((words(&y.allow), y.hosts_allow.len(), x.hosts_allow.len()), (vec!["ann"], 1, 1));
    let report = report.lines().join("\n");
    assert!(
        report.contains("the file is taken over") && report.contains("Samba goes on without it")
    );

    // The error message names the included file in which the fault is.
    std::fs::write(at("inner"), "nonsense\n").unwrap();
    let failure = parse(&text, Path::new("smb.conf"), Origin::ThisHost).unwrap_err().to_string();
    assert!(failure.starts_with(&format!("{}:1: ", at("inner"))), "{failure}");
    // The first file includes itself; the second one is longer than the limit.
    std::fs::write(at("more"), format!("include = {}\n", at("more"))).unwrap();
    let (_, report) = convert(
        &parse(&text, Path::new("smb.conf"), Origin::ThisHost).unwrap(),
        &[],
        &HostFacts::default(),
    );
    assert!(report.is_refused());
    std::fs::write(at("more"), "x".repeat(BYTES_MAX as usize + 1)).unwrap();
    assert!(
        parse(&text, Path::new("smb.conf"), Origin::ThisHost)
            .unwrap_err()
            .to_string()
            .contains("is longer than")
    );
}

/// Files begin like testparm's output that samba-tool wrote, or that had lines added later.
#[test]
fn no_file_counts_as_output_of_testparm() {
    let place = tempfile::tempdir().unwrap();
    let more = place.path().join("more").to_str().unwrap().to_owned();
    std::fs::write(&more, "valid users = ann\n").unwrap();
    let share = "[x]\n\tpath = /x\n";
    let included = format!("# Global parameters\n[global]\n{share}\tinclude = {more}\n");
    let copying = format!("# Global parameters\n[global]\n[a]\npath=/a\n{share}\tcopy = a\n");
    let of = |text: &str, origin, accepted: &[&str]| {
        let conf = parse(text, Path::new("smb.conf"), origin).unwrap();
        let accepted: Vec<String> = accepted.iter().map(ToString::to_string).collect();
        let (toml, _) = convert(&conf, &accepted, &HostFacts::default());
        let mut shares = Config::parse(&toml).unwrap().shares.into_iter();
        shares.find(|share| share.name.get_ref().as_str() == "x").map(|share| share.allow)
    };
    assert_eq!(words(&of(&included, Origin::ThisHost, &[]).unwrap()), ["ann"]);
    for (text, option) in [(included, "include"), (copying, "copy")] {
        assert!(of(&text, Origin::OtherHost, &[]).is_none(), "{text}");
        assert!(of(&text, Origin::OtherHost, &[option]).is_some(), "{text}");
        assert!(of(&text, Origin::Testparm, &[]).is_some(), "the user says that it is: {text}");
    }
}

/// As `testparm -s` of Samba 4.17 prints it.
#[test]
fn output_of_testparm_is_taken_over_whole() {
    let text = "# Global parameters\n[global]\n\tworkgroup = INC\n\tidmap config * : backend = tdb\n\
                \tinclude = /etc/samba/more.conf\n\n\n[media]\n\tpath = /srv/media\n\tread only = No\n\n\n\
                [copied]\n\tcomment = x\n\tcopy = media\n\tpath = /srv/copied\n\tread only = No\n";
    let of = |origin| {
        let conf = parse(text, Path::new("-"), origin).unwrap();
        let (toml, report) = convert(&conf, &[], &HostFacts::default());
        (Config::parse(&toml).unwrap().shares.len(), report)
    };
    let (shares, report) = of(Origin::Testparm);
    assert_eq!((shares, report.is_refused()), (2, false), "{:?}", report.lines());
    for option in ["include = /etc/samba/more.conf: testparm has", "copy = media: testparm has"] {
        assert!(report.of(Weight::Harmless).any(|line| line.contains(option)), "{option}");
    }
    assert!(of(Origin::OtherHost).1.is_refused());
}

/// The smb.conf of this host tells whether PAM's rules are obeyed; one that cannot be read tells nothing.
#[test]
fn an_smb_conf_that_cannot_be_read_is_no_leave() {
    let place = tempfile::tempdir().unwrap();
    let (none, here) = (place.path().join("none"), place.path().join("smb.conf"));
    let obeys = || obeys_pam_in(&[&none, &here]);
    assert!(!obeys().unwrap(), "there is none");
    for (text, is_obeyed) in [
        (&b"[global]\nobey pam restrictions = yes\n"[..], Some(true)),
        (b"[global]\nobey pam restrictions = no\n", Some(false)),
        (b"[x]\npath = /x\n", Some(false)),
        (b"# caf\xe9\n[global]\nobey pam restrictions = yes\n", None),
        (b"[global\n", None),
    ] {
        std::fs::write(&here, text).unwrap();
        assert_eq!(obeys().ok(), is_obeyed, "{}", text.escape_ascii());
    }
}

/// Losses by Samba's defaults, and by options without an equal, are told with what to do.
#[test]
fn what_is_lost_is_said() {
    let (config, toml, report) = import(
        "[global]\nmulticast dns register = no\nclustering = yes\nvfs objects = fruit streams_xattr\n\
         fruit:encoding = native\n\
         [a]\npath=/a\n[b]\npath=/b\nvfs objects=full_audit acl_xattr\nfull_audit:facility = LOCAL7\n\
         full_audit:prefix = %u\nacl_xattr:security_acl_name = user.NTACL\n\
         [c]\npath=/c\nread only=no\nvfs objects=recycle\nrecycle:repository=/c/bin/\n",
    );
    assert_eq!(config.server.discovery.map(|choice| choice.as_str()), Some("off"));
    for line in [
        "[global] fruit:metadata is not set, which means netatalk",
        "[global] fruit:resource is not set, which means file, resource forks in files ._NAME",
        "clustering = yes: servers do not know each other's open files",
        "full_audit:facility = LOCAL7: the log goes to syslog as authpriv.info",
        "full_audit:prefix = %u: lines of the log have fields",
        "[b] lists in security.NTACL are obeyed; new ones go there",
        "acl_xattr:security_acl_name = user.NTACL: lists there are obeyed",
    ] {
        assert!(report.contains(line), "{line} not in\n{report}");
    }
    assert!(
        !report.contains("fruit:encoding is not set") && !report.contains("[a] fruit"),
        "{report}"
    );
    assert!(
        toml.contains("recycle = { keep_days = 0, folder = \"bin\", versions = false }"),
        "{toml}"
    );
    // full_audit has no list here, so it records nothing.
    assert!(toml.contains("audit = []\n"), "{toml}");
}

/// Terminals obey nothing of an smb.conf, in the report and in the frevo.toml.
#[test]
fn control_characters_do_not_reach_the_terminal() {
    let (_, toml, report) = import(
        "[global]\nserver string = a\u{1b}[2Jb\u{9b}2J\nnetbios name = \u{1b}]0;x\u{7}\n\
         [x]\npath=/x\u{1b}[2J\ncomment = \u{9b}2J\nvfs objects = \u{1b}c\n",
    );
    for text in [&toml, &report] {
        let bad = text.chars().find(|c| c.is_control() && *c != '\n');
        assert_eq!(bad, None, "{text:?}");
    }
}
