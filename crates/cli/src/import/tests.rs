use frevo_server::config::{
    Config, DialectName, EncryptionChoice, Mode, RunAsChoice, SigningChoice,
};

use super::*;

fn import(text: &str) -> (Config, String, String) {
    let conf = SmbConf::parse(text).unwrap();
    let (toml, report) = convert(&conf);
    let config = Config::parse(&toml).unwrap_or_else(|faults| panic!("{faults:?} in:\n{toml}"));
    (config, toml, report.lines().collect::<Vec<_>>().join("\n"))
}

const TYPICAL: &str = r#"
# Sample
[global]
   workgroup = WORKGROUP
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
   fruit:metadata = stream
   no such thing = 1

[Photos]
   comment = Pictures
   path = /srv/photos
   writeable = yes
   browseable = no
   valid users = ann, "bob" DOM\carl
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
    let listen: Vec<String> = server.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["lo:445", "192.0.2.1:445", "[2001:db8::1]:445"]);
    assert_eq!(server.min_dialect, Some(DialectName::Smb21));
    assert_eq!(server.signing, Some(SigningChoice::Offered));
    assert_eq!(server.encryption, Some(EncryptionChoice::Offered));

    let photos = &config.shares[0];
    assert_eq!(photos.name.get_ref().as_str(), "Photos");
    assert!(!photos.read_only && photos.hidden && !photos.encrypt && !photos.follow_symlinks);
    let users: Vec<&str> = photos.allow.iter().map(|user| user.as_str()).collect();
    assert_eq!(users, ["ann", "bob", "carl"]);
    assert_eq!(photos.file_mode, Some(Mode(0o664)));
    assert_eq!(photos.directory_mode, Some(Mode(0o2775)));

    // Without a word about it a share of Samba's is read-only.
    let docs = &config.shares[1];
    assert!(docs.read_only && docs.encrypt && docs.case_sensitive && docs.allow.is_empty());

    for dropped in [
        "dropped [global] interfaces eth*: it is neither an address nor",
        "dropped [global] workgroup:",
        "dropped [global] log level:",
        "dropped [global] smb ports 139: NetBIOS is not supported",
        "dropped [global] fruit:metadata: an option of Samba's module fruit, not needed",
        "dropped [global] no such thing: Frevo has no such setting",
        "dropped [Photos] guest ok: guests are not supported",
        "dropped [Photos] vfs objects = fruit:",
    ] {
        assert!(report.contains(dropped), "{dropped} not in\n{report}");
    }
    assert!(!report.contains("create mask"), "{report}");
}

#[test]
fn nothing_becomes_more_open() {
    for narrowing in [
        "valid users = %S",
        "invalid users = %U",
        "hosts allow = 192.0.2. EXCEPT 192.0.2.7",
        "hosts deny = nas.example.com",
        "veto files = /*.key/",
        "force user = %U",
        "copy = other",
        "available = no",
    ] {
        let (config, toml, report) = import(&format!("[x]\npath = /x\n{narrowing}\n"));
        assert!(config.shares.is_empty(), "{narrowing}");
        assert!(toml.contains("# [[share]]\n# name = \"x\"\n"), "{toml}");
        assert!(toml.contains("# Not shared: ") && report.contains("not shared [x]: "), "{report}");
        // The same, for all shares at once.
        if !narrowing.starts_with("copy") {
            let (config, ..) = import(&format!("[global]\n{narrowing}\n[x]\npath = /x\n"));
            assert!(config.shares.is_empty(), "{narrowing}");
        }
    }
    for harmless in ["max connections = 0", "hosts allow = ALL", "hide unreadable = no"] {
        let (config, ..) = import(&format!("[x]\npath = /x\n{harmless}\n"));
        assert_eq!(config.shares.len(), 1, "{harmless}");
    }
    let (config, ..) = import("[global]\nhide unreadable = yes\n[x]\npath = /x\n");
    assert!(config.shares[0].hide_unreadable && !config.shares[0].inherited_as_set);
    let (config, ..) = import("[x]\npath = /x\nacl flag inherited canonicalization = no\n");
    assert!(config.shares[0].inherited_as_set);
}

#[test]
fn who_may_do_what_is_taken_over() {
    let (config, toml, report) = import(
        "[global]\nhosts allow = 192.0.2. 127.\nusername map = /etc/samba/users\n[x]\npath = /x\nread only = yes\n\
         valid users = @staff +it bob\ninvalid users = carl\nread list = bob\n\
         write list = @it\nhosts deny = ALL\n",
    );
    let share = config.shares.first().unwrap_or_else(|| panic!("{report}"));
    let words = |listed: &[frevo_server::config::Who]| -> Vec<String> {
        listed.iter().map(|who| who.as_str().to_owned()).collect()
    };
    assert_eq!(words(&share.allow), ["@staff", "@it", "bob"]);
    assert_eq!(words(&share.deny), ["carl"]);
    assert_eq!(
        (words(&share.read_list), words(&share.write_list)),
        (vec!["bob".into()], vec!["@it".into()])
    );
    let hosts: Vec<String> = share.hosts_allow.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["192.0.2.0/24", "127.0.0.0/8"]);
    assert_eq!(share.hosts_deny.len(), 1, "{toml}");
    assert!(share.read_only && !report.contains("[x]"), "{report}");
    assert_eq!(config.server.user_map_file, Some("/etc/samba/users".into()));
    assert_eq!(share.run_as, Some(RunAsChoice::User));
    let (config, _, report) = import(
        "[x]\npath = /x\nforce user = media\nforce group = media\n[y]\npath = /y\ngroup = +it\n",
    );
    let forced = |name: &Option<toml::Spanned<String>>| name.as_ref().map(|n| n.get_ref().clone());
    let [x, y] = &config.shares[..] else { panic!("{report}") };
    assert_eq!((x.run_as, forced(&x.force_user)), (None, Some("media".into())));
    assert_eq!((forced(&x.force_group), forced(&y.force_group)), (Some("media".into()), None));
    assert!(report.contains("dropped [y] force group = +it"), "{report}");
}

#[test]
fn what_cannot_be_shared_is_said() {
    let (config, _, report) = import(
        "[homes]\n[printers]\npath=/x\n[print$]\n[a]\n[b]\npath=/home/%U\n[c]\npath=x\n\
         [bad/name]\npath=/x\n[spool]\npath=/x\nprintable = yes\n",
    );
    assert!(config.shares.is_empty());
    for line in [
        "[homes]: home folders",
        "[printers]: printing is not supported",
        "[a]: the path is missing",
        "[b]: the path /home/%U",
        "[c]: the path x",
        "[bad/name]: the share name",
        "[spool]: it is a printer",
    ] {
        assert!(report.contains(&format!("not shared {line}")), "{line} not in\n{report}");
    }
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
    assert_eq!(SmbConf::parse("[a]\nb = 1\nnonsense\n").unwrap_err().0, 3);
    assert_eq!(SmbConf::parse("[a\n").unwrap_err().0, 1);
}

/// Found by the fuzzer: TOML refuses control characters in comments.
#[test]
fn a_share_that_is_left_out_is_a_comment_whatever_its_name_holds() {
    let (config, _, report) = import("[a\u{8}b]\npath = c\u{c}d\re\n");
    assert!(report.contains("not shared [") && config.shares.is_empty(), "{report}");
}
