mod files;
mod ldap;
mod openness;

use frevo_config::{
    Config, DialectName, EncryptionChoice, Mode, NtAclsChoice, RunAsChoice, SigningChoice,
    UnknownUsersChoice, Who,
};

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
        "[Photos] line 25: guest ok = yes: guests are not let in, because the share has rules for users",
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
    assert!(!report.contains("map to guest"), "{report}");
}

/// Guests may do what they could, and nobody else may do more: other shares go on demanding encryption
/// where the server did.
#[test]
fn guests_are_taken_over_with_their_rights() {
    const GUESTS: &str = "[a]\npath=/a\nguest ok=yes\nread only=no\n[b]\npath=/b\npublic=yes\n\
                          force user=media\nhosts allow=192.0.2.0/24\n[c]\npath=/c\n";
    let of =
        |global: &str| import(&format!("[global]\nmap to guest = Bad User\n{global}\n{GUESTS}"));
    let guest = |share: &frevo_config::ShareSection| {
        (share.guest.as_ref().map(|user| user.get_ref().clone()), share.guest_write, share.encrypt)
    };
    let (config, _, report) = of("");
    let [a, b, c] = &config.shares[..] else { panic!("{report}") };
    assert_eq!(guest(a), (Some(String::from("nobody")), true, false));
    assert_eq!(guest(b), (Some(String::from("media")), false, false));
    assert_eq!(guest(c), (None, false, true));
    assert_eq!(config.server.encryption, Some(EncryptionChoice::Offered));
    assert_eq!(config.server.unknown_users, Some(UnknownUsersChoice::Guest));
    assert!(
        report.contains("[a] line 6: guest ok = yes: guests are let in from private"),
        "{report}"
    );
    assert!(!report.contains("[b] line"), "{report}");
    let (config, ..) = of("server smb encrypt = desired\nguest account = visitor");
    assert_eq!(guest(&config.shares[0]), (Some(String::from("visitor")), true, false));
    assert!(!config.shares[2].encrypt, "as in Samba");
    for (global, why) in [
        ("server smb encrypt = required", "encryption is demanded"),
        ("invalid users = eve", "rules for users (invalid users)"),
        ("guest account = root", "guests cannot be root"),
    ] {
        let (config, _, report) = of(global);
        assert_eq!(guest(&config.shares[0]).0, None, "{global}");
        assert!(report.contains(why), "{report}");
    }
    let (config, _, report) = import("[global]\nmap to guest = bad user\n[c]\npath=/c\n");
    assert_eq!((config.server.unknown_users, config.server.encryption), (None, None));
    assert!(report.contains("map to guest = bad user: no share lets guests in"), "{report}");
    let (config, _, report) =
        import("[global]\nmap to guest = bad password\n[c]\npath=/c\nguest ok=yes\n");
    assert_eq!(config.server.unknown_users, Some(UnknownUsersChoice::Guest));
    assert!(report.contains("a wrong password of an account is always refused"), "{report}");
    let (config, ..) = import("[c]\npath=/c\nguest ok=yes\n");
    assert_eq!(config.server.unknown_users, None, "only who asks to be a guest is one");
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

#[test]
fn forced_modes_are_modes() {
    let (config, _, report) = import(
        "[a]\npath=/a\nforce create mode=0664\nforce directory mode=2775\n\
         [b]\npath=/b\ncreate mask=0600\nforce create mode=0111\n\
         [c]\npath=/c\nforce create mode=0\nforce directory mode=000\n\
         [d]\npath=/d\nforce create mode=06060\nforce directory mode=4070\n",
    );
    let mode = |bits| Some(Mode(bits));
    let modes: Vec<_> = config
        .shares
        .iter()
        .map(|s| [s.file_mode, s.force_file_mode, s.directory_mode, s.force_directory_mode])
        .collect();
    let expected = [
        [mode(0o744), mode(0o664), mode(0o755), mode(0o2775)],
        [mode(0o600), mode(0o111), mode(0o755), None],
        [mode(0o744), None, mode(0o755), None],
        [mode(0o744), mode(0o060), mode(0o755), mode(0o070)],
    ];
    assert_eq!(modes, expected);
    for line in [
        "[d] line 15: force create mode = 06060: the bits 6000 are never set for clients",
        "[d] line 16: force directory mode = 4070: the bits 4000 are never set for clients",
    ] {
        assert!(report.contains(line), "{line} not in {report}");
    }
    assert!(["[a]", "[b]", "[c]"].iter().all(|name| !report.contains(name)), "{report}");
}

#[test]
fn modes_owners_and_lists_are_inherited_as_in_samba() {
    let (config, ..) = import(
        "[a]\npath=/a\ninherit permissions = yes\ninherit acls = yes\ninherit owner = yes\n\
         [b]\npath=/b\ninherit permissions = no\ninherit acls = no\ninherit owner = no\n\
         [c]\npath=/c\ninherit owner = Unix only\nnt acl support = no\n",
    );
    let inherited: Vec<_> = config
        .shares
        .iter()
        .map(|s| ([s.inherit_modes, s.inherit_acls, s.inherit_owner], s.nt_acls))
        .collect();
    assert_eq!(
        inherited,
        [
            ([true; 3], Some(NtAclsChoice::Posix)),
            ([false; 3], None),
            ([false, false, true], Some(NtAclsChoice::Off)),
        ]
    );
}

/// In Samba attributes that are stored are no bits of the mode, whatever is said of these.
#[test]
fn attributes_are_stored_or_bits_of_the_mode() {
    let (config, _, report) = import(
        "[a]\npath=/a\nmap archive = yes\nmap hidden = yes\nmap system = no\n\
         [b]\npath=/b\nstore dos attributes = no\nmap hidden = yes\n\
         [c]\npath=/c\nstore dos attributes = no\nmap archive = no\nmap readonly = no\n\
         [d]\npath=/d\nstore dos attributes = no\nmap system = yes\nvfs objects = acl_xattr\n\
         [e]\npath=/e\nstore dos attributes = no\nmap archive = no\nmap readonly = Permissions\n",
    );
    let mapped: Vec<_> = config
        .shares
        .iter()
        .map(|s| {
            let mapped = [s.map_archive, s.map_hidden, s.map_system, s.map_readonly];
            (mapped, s.dos_attributes, s.nt_acls)
        })
        .collect();
    assert_eq!(
        mapped,
        [
            ([false; 4], None, None),
            ([true, true, false, true], Some(false), Some(NtAclsChoice::Posix)),
            ([false; 4], Some(false), None),
            ([false; 4], Some(false), None),
            ([false; 4], Some(false), None),
        ]
    );
    let line = "[d] line 18: map system = yes: a stored access list does not apply any more";
    assert!(report.contains(line), "{report}");
}

/// A user who may write a file may change its permissions, unless an access list is stored that says who may.
#[test]
fn writers_change_permissions_where_no_list_is_stored() {
    let (config, _, report) = import(
        "[a]\npath=/a\ndos filemode = yes\n[b]\npath=/b\ndos filemode = no\n\
         [c]\npath=/c\ndos filemode = yes\nnt acl support = no\n\
         [d]\npath=/d\ndos filemode = yes\nvfs objects = acl_xattr\n",
    );
    let of = |share: &frevo_config::ShareSection| (share.dos_filemode, share.nt_acls);
    let shares: Vec<_> = config.shares.iter().map(of).collect();
    let (posix, off) = (Some(NtAclsChoice::Posix), Some(NtAclsChoice::Off));
    assert_eq!(shares, [(true, posix), (false, None), (false, off), (false, None)]);
    assert!(report.contains("[d] line 13: dos filemode = yes: a stored access list"), "{report}");
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
