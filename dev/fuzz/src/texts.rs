//! Files that people write.

use std::path::PathBuf;

use frevo_auth::{AccountFile, Accounts as _};
use frevo_config::{AccountName, Config, ServerName, ShareName};
use frevo_server::user_map::UserMap;

#[allow(dead_code, reason = "nothing is opened")]
#[path = "../../../crates/cli/src/configured/folder.rs"]
mod folder;

#[path = "../../../crates/cli/src/import"]
mod import {
    // Only those modules of `frevo import` are included that turn text into text.
    #![allow(dead_code, reason = "the part that reads and writes files is left out")]
    mod access_options;
    mod conversion;
    mod dfs_links;
    mod domain;
    mod global;
    mod global_options;
    mod host_facts;
    mod hosts;
    mod guests;
    mod ldap;
    mod modes;
    mod modules;
    mod names;
    mod options;
    mod pam;
    mod recycle;
    mod report;
    mod share;
    mod share_modules;
    mod smb_conf;
    mod toml_text;
    mod whole;
    mod words;

    /// The frevo.toml for an smb.conf, as `frevo import` makes it.
    pub(super) fn converted(text: &str) -> Option<String> {
        // The text of an included file is the end of the input itself, so it may include itself
        // again.
        let included: String =
            text.chars().rev().take(200).collect::<Vec<_>>().into_iter().rev().collect();
        let mut left = 0..16;
        let conf = smb_conf::SmbConf::parse_with(text, &mut |path| match path.len() % 3 {
            0 if left.next().is_some() => smb_conf::Included::Text(included.clone()),
            1 => smb_conf::Included::Nothing("there is no such file".to_owned()),
            _ => smb_conf::Included::Unknown,
        });
        let (toml, report) = whole::convert(&conf.ok()?, &[], &host_facts::HostFacts::default());
        assert!(report.lines().iter().all(|line| !line.contains('\n')), "a report in lines");
        Some(toml)
    }
}

/// An smb.conf, and the frevo.toml that is made of it.
pub fn smb_conf(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some(toml) = import::converted(&text) else { return };
    // The imported text may have an invalid value, which is reported, but it must always be TOML.
    if let Err(faults) = Config::parse(&toml) {
        faults.iter().for_each(|fault| drop(fault.to_string()));
        assert!(toml.parse::<toml::Table>().is_ok(), "not TOML:\n{toml}");
    }
}

/// A frevo.toml, and the names in it.
pub fn frevo_toml(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    match Config::parse(&text) {
        Ok(config) => {
            config.contradictions().iter().for_each(|fault| drop(fault.to_string()));
            for share in &config.shares {
                let _ = folder::is_same(share, share);
            }
        }
        Err(faults) => {
            assert!(!faults.is_empty(), "a refusal says why");
            faults.iter().for_each(|fault| drop(fault.to_string()));
        }
    }
    let first = text.lines().next().unwrap_or("");
    if let Ok(name) = first.parse::<ShareName>() {
        let _ = frevo_config::ShareSection::new(name, PathBuf::from("/srv"));
    }
    let _ = (first.parse::<ServerName>(), first.parse::<AccountName>());
}

/// The accounts file in the form of smbpasswd, and the map of users. The first byte
/// chooses.
pub fn account_files(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(data);
    if kind % 4 == 3 {
        if let Ok(map) = UserMap::parse(&text) {
            for name in text.split_whitespace().take(8) {
                let _ = map.account(name, "DOMAIN");
            }
        }
        return;
    }
    let Ok(mut file) = AccountFile::parse(&text) else { return };
    let written = file.to_text();
    let again = AccountFile::parse(&written).expect("what we write we read");
    assert!(again.entries().eq(file.entries()), "the same accounts");
    let names: Vec<String> = file.entries().take(8).map(|entry| entry.name.clone()).collect();
    for name in names {
        assert!(file.find(&name).is_some());
        let _ = (file.account(&name, ""), file.membership(&name));
        assert!(file.set_enabled(&name, kind % 2 == 0));
        if kind % 3 == 0 {
            assert!(file.remove(&name));
        }
    }
    let changed = file.to_text();
    let again = AccountFile::parse(&changed).expect("what we changed we read");
    assert!(again.entries().eq(file.entries()), "the changed accounts");
}
