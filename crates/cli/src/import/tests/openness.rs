//! No conversion opens a share that Samba kept closed.

use super::*;

/// Each name of Samba 4.22 is in the table of options, or belongs to a module that is known.
#[test]
fn every_option_of_samba_is_known() {
    let names = include_str!("../fixtures/options-4.22.txt");
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
    let names = include_str!("../fixtures/options-4.22.txt");
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
        "inherit owner = yes\nvfs objects = acl_xattr",
        "inherit owner = sometimes",
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
