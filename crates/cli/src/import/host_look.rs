//! A look at the host of an smb.conf: the facts that its files, PAM and Samba itself tell.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use frevo_server::user_map::UserMap;
use rustix::system::uname;

use super::dfs_links;
use super::domain;
use super::host_facts::{HostFacts, UserMapFile};
use super::names::NameRules;
use super::options;
use super::pam;
use super::smb_conf::SmbConf;
use super::words::squeezed;
use crate::machine_sid;

impl HostFacts {
    /// Looks at this host, on behalf of an smb.conf with this text. About the host of an smb.conf
    /// from somewhere else nothing is known.
    pub(super) fn look(conf: &SmbConf, text: &str, path: &Path) -> Self {
        if !machine_sid::is_of_this_host(path) {
            return Self::default();
        }
        let global = |name: &str| conf.global().and_then(|global| global.value(name));
        let name = uname().nodename().to_string_lossy().into_owned();
        let is_member =
            conf.global().is_some_and(|global| NameRules::of(global, Some(&name)).is_member());
        Self {
            ignored: ignored(conf, text),
            pam: pam::rules(Path::new(pam::FOLDER), is_member),
            domain_sid: global("workgroup").and_then(|name| machine_sid::of_domain(path, name)),
            keytab: conf.global().and_then(domain::keytab).filter(|keytab| keytab.is_file()),
            user_map: global("username map").map_or(UserMapFile::Usable, user_map),
            name: Some(name),
            dfs_links: dfs_links::find(conf),
        }
    }
}

fn user_map(path: &str) -> UserMapFile {
    let file = Path::new(path);
    match std::fs::read_to_string(file) {
        Ok(text) => match UserMap::parse(&text) {
            Ok(_) => UserMapFile::Usable,
            Err(fault) => UserMapFile::Faulty(fault.to_string()),
        },
        Err(_) if !file.exists() && file.parent().is_some_and(Path::is_dir) => UserMapFile::Missing,
        Err(_) => UserMapFile::Usable,
    }
}

/// The options that this program does not know and the host's testparm does not know either.
fn ignored(conf: &SmbConf, text: &str) -> BTreeSet<String> {
    let is_known = |name: &str| {
        name.contains(':')
            || options::of_share(name).is_some()
            || options::of_global(name).is_some()
    };
    if conf.parameters().all(|parameter| is_known(&parameter.name)) {
        return BTreeSet::new();
    }
    testparm(text).unwrap_or_default()
}

/// The options that testparm says to ignore; None when it is not here or fails.
fn testparm(text: &str) -> Option<BTreeSet<String>> {
    let mut child = Command::new("testparm")
        .args(["-s", "/dev/stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut input = child.stdin.take()?;
    let text = text.to_owned();
    let writer = std::thread::spawn(move || {
        let _ = input.write_all(text.as_bytes());
    });
    let output = child.wait_with_output().ok()?;
    writer.join().ok()?;
    Some(told_unknown(&String::from_utf8_lossy(&output.stderr)))
}

/// The names in lines such as `Ignoring unknown parameter "NT-domain"`.
fn told_unknown(told: &str) -> BTreeSet<String> {
    let names = told.lines().filter_map(|line| {
        let (_, name) = line.split_once("Ignoring unknown parameter \"")?;
        Some(squeezed(name.strip_suffix('"')?))
    });
    names.collect()
}

#[cfg(test)]
mod tests {
    use super::super::pam::Pam;
    use super::*;

    #[test]
    fn what_testparm_ignores_is_read() {
        let told = "Load smb config files from /dev/stdin\nUnknown parameter encountered: \
                    \"NT-domain\"\nIgnoring unknown parameter \"NT-domain\"\n\
                    Ignoring unknown parameter \"vallid users\"\nLoaded services file OK.\n";
        let names: Vec<String> = told_unknown(told).into_iter().collect();
        assert_eq!(names, ["nt-domain", "vallidusers"]);
    }

    #[test]
    fn another_hosts_smb_conf_is_not_judged_by_this_host() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("smb.conf");
        let text = "[global]\nNT-domain = x\nusername map = /etc/none\nobey pam restrictions = yes\n\
                    kerberos method = system keytab\n";
        std::fs::write(&path, text).unwrap();
        let conf = SmbConf::parse(text).unwrap();
        for path in [&*path, Path::new("-")] {
            let HostFacts { ignored, pam, domain_sid, keytab, user_map, name, dfs_links } =
                HostFacts::look(&conf, text, path);
            assert!(ignored.is_empty() && domain_sid.is_none() && keytab.is_none());
            assert!(dfs_links.is_empty());
            assert_eq!((pam, user_map, name), (Pam::Unknown, UserMapFile::Usable, None));
        }
    }

    #[test]
    fn a_file_of_names_is_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name).to_str().unwrap().to_owned();
        std::fs::write(at("good"), "!ann = SAMDOM\\bob\n").unwrap();
        std::fs::write(at("all"), "nobody = *\n").unwrap();
        assert_eq!(user_map(&at("good")), UserMapFile::Usable);
        assert_eq!(user_map(&at("none")), UserMapFile::Missing);
        assert!(matches!(user_map(&at("all")), UserMapFile::Faulty(_)));
        assert_eq!(user_map(&at("no/folder")), UserMapFile::Usable, "it may be on another host");
    }
}
