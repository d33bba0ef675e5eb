//! Files of an smb.conf: those of distributions, included ones, output of testparm.

use super::*;

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

/// A whole server's configuration gives this frevo.toml and this report, sorted by weight. With
/// WRITE_FIXTURES in the environment the test writes them, to be read after a change.
#[test]
fn the_configuration_of_a_company() {
    let text = include_str!("../fixtures/company.conf");
    let (_, toml, report) = import_with(text, &["obey pam restrictions"]);
    let report = report.lines().join("\n") + "\n";
    if std::env::var_os("WRITE_FIXTURES").is_some() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/import/fixtures");
        std::fs::write(format!("{folder}/company.toml"), &toml).unwrap();
        std::fs::write(format!("{folder}/company.report"), &report).unwrap();
    }
    for (found, wanted, name) in [
        (toml, include_str!("../fixtures/company.toml"), "company.toml"),
        (report, include_str!("../fixtures/company.report"), "company.report"),
    ] {
        for (number, (found, wanted)) in found.lines().zip(wanted.lines()).enumerate() {
            assert_eq!(found, wanted, "{name}:{}", number + 1);
        }
        assert_eq!(found.lines().count(), wanted.lines().count(), "{name}");
    }
}

#[test]
fn a_line_that_is_no_smb_conf_is_named() {
    assert_eq!(SmbConf::parse("[a]\nb = 1\nnonsense\n").unwrap_err().line, 3);
    assert_eq!(SmbConf::parse("[a\n").unwrap_err().line, 1);
}
