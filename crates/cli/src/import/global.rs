//! `[global]` to `[server]`.

use std::fmt::Write as _;

use frevo_server::config::{DialectName, Listen, ListenOn, ServerName};

use super::report::Report;
use super::smb_conf::{Section, list, truth};

/// Parameters that are looked at here or with the shares.
const LOOKED_AT: &[&str] = &[
    "bind interfaces only",
    "guest account",
    "interfaces",
    "max protocol",
    "min protocol",
    "netbios name",
    "protocol",
    "server max protocol",
    "server min protocol",
    "server signing",
    "server smb encrypt",
    "server string",
    "smb encrypt",
    "smb ports",
    "username map",
];

/// Parameters without an equal, and why none is needed or had.
const WITHOUT_EQUAL: &[(&str, &str)] = &[
    ("workgroup", "there is no browsing by workgroup; clients log on with the user name alone"),
    ("security", "accounts are Frevo's own"),
    ("server role", "Frevo is a standalone file server"),
    ("passdb backend", "take the accounts over with: pdbedit -L -w | frevo user import -"),
    ("smb passwd file", "take the accounts over with: frevo user import FILE"),
    ("encrypt passwords", "passwords are never sent in clear"),
    ("map to guest", "there are no guests: everybody logs on"),
    ("null passwords", "there are no empty passwords"),
    ("log file", "log lines go to standard error or the journal (log, log_level)"),
    ("log level", "see log_level"),
    ("max log size", "the journal or logrotate keeps logs short"),
    ("logging", "see log"),
    ("syslog", "see log"),
    ("syslog only", "see log"),
    ("panic action", "nothing is run when something fails"),
    ("load printers", "Frevo does not print"),
    ("printing", "Frevo does not print"),
    ("printcap name", "Frevo does not print"),
    ("disable spoolss", "Frevo does not print"),
    ("unix password sync", "Frevo's accounts need not be Unix users"),
    ("passwd program", "Frevo's accounts need not be Unix users"),
    ("passwd chat", "Frevo's accounts need not be Unix users"),
    ("pam password change", "Frevo's accounts need not be Unix users"),
    ("obey pam restrictions", "PAM is not asked"),
    ("usershare allow guests", "there are no user shares and no guests"),
    ("usershare max shares", "there are no user shares"),
    ("usershare path", "there are no user shares"),
    ("dns proxy", "there is no NetBIOS name service"),
    ("name resolve order", "there is no NetBIOS name service"),
    ("wins support", "there is no NetBIOS name service"),
    ("wins server", "there is no NetBIOS name service"),
    ("domain master", "there is no browsing service"),
    ("local master", "there is no browsing service"),
    ("preferred master", "there is no browsing service"),
    ("os level", "there is no browsing service"),
    ("disable netbios", "NetBIOS is absent"),
    ("socket options", "sockets are set up without advice"),
    ("use sendfile", "the fastest way that the system has is taken"),
    ("aio read size", "the fastest way that the system has is taken"),
    ("aio write size", "the fastest way that the system has is taken"),
    ("min receivefile size", "the fastest way that the system has is taken"),
    ("getwd cache", "there is no such cache"),
    ("deadtime", "idle clients are left alone"),
    ("keepalive", "dead connections are found out by themselves"),
    ("unix extensions", "SMB1's extensions are absent"),
    ("ntlm auth", "NTLMv2 alone is spoken"),
    ("lanman auth", "NTLMv2 alone is spoken"),
    ("client min protocol", "it is about Samba's clients"),
    ("client max protocol", "it is about Samba's clients"),
    ("client signing", "it is about Samba's clients"),
    ("realm", "there is no Active Directory yet"),
    ("server multi channel support", "it is always there"),
    ("winbind use default domain", "there is no Active Directory yet"),
    ("template shell", "there is no Active Directory yet"),
    ("template homedir", "there is no Active Directory yet"),
];

/// The `[server]` that goes with `[global]`.
pub(super) fn convert(global: &Section, report: &mut Report) -> String {
    let mut toml = String::from("\n[server]\n");
    name(global, report, &mut toml);
    listen(global, report, &mut toml);
    dialects(global, report, &mut toml);
    protection(global, report, &mut toml);
    match global.value(&["username map"]).filter(|path| !path.is_empty()) {
        Some(path) if path.starts_with('/') && !path.contains('%') => {
            line(&mut toml, "user_map_file", &quoted(path));
        }
        Some(path) => report.dropped(
            "global",
            &format!("username map = {path}"),
            "its path is not absolute, or has a % substitution",
        ),
        None => {}
    }
    for parameter in &global.parameters {
        rest(&parameter.name, &parameter.value, report);
    }
    toml
}

fn name(global: &Section, report: &mut Report, toml: &mut String) {
    if let Some(name) = global.value(&["netbios name"]) {
        match name.parse::<ServerName>() {
            Ok(name) => line(toml, "name", &quoted(name.as_str())),
            Err(why) => report.dropped("global", "netbios name", &why),
        }
    }
    if let Some(comment) = global.value(&["server string"]) {
        if comment.contains('%') {
            report.dropped("global", "server string", "there are no % substitutions");
        } else if !comment.is_empty() {
            line(toml, "comment", &quoted(comment));
        }
    }
}

fn listen(global: &Section, report: &mut Report, toml: &mut String) {
    let ports: Vec<u16> = global
        .value(&["smb ports"])
        .map(|value| list(value).iter().filter_map(|port| port.parse().ok()).collect())
        .unwrap_or_default();
    if ports.contains(&139) {
        report.dropped("global", "smb ports 139", "NetBIOS is absent");
    }
    let ports: Vec<u16> = ports.into_iter().filter(|port| *port != 139).collect();
    let mut places = Vec::new();
    if global.truth(&["bind interfaces only"]).unwrap_or(false) {
        for interface in global.value(&["interfaces"]).map(list).unwrap_or_default() {
            // After a slash is a mask, after a semicolon advice for multichannel.
            let name = interface.split([';', '/']).next().unwrap_or_default();
            match name.parse::<Listen>() {
                Ok(Listen { on, port: None }) => places.push(on),
                _ => report.dropped(
                    "global",
                    &format!("interfaces {interface}"),
                    "it is neither an address nor the name of an interface; see listen",
                ),
            }
        }
    }
    if places.is_empty() {
        if ports.is_empty() {
            return;
        }
        places.push(ListenOn::Everywhere);
    }
    let ports: Vec<Option<u16>> =
        if ports.is_empty() { vec![None] } else { ports.into_iter().map(Some).collect() };
    let entries: Vec<String> = places
        .iter()
        .flat_map(|on| ports.iter().map(move |&port| Listen { on: on.clone(), port }))
        .map(|listen| quoted(&listen.to_string()))
        .collect();
    line(toml, "listen", &format!("[{}]", entries.join(", ")));
}

/// Samba's name of a dialect; an error says why there is none.
fn dialect(value: &str) -> Result<DialectName, &'static str> {
    match value.to_ascii_uppercase().as_str() {
        "SMB2_02" => Ok(DialectName::Smb202),
        "SMB2" | "SMB2_10" => Ok(DialectName::Smb21),
        "SMB3_00" => Ok(DialectName::Smb30),
        "SMB3_02" => Ok(DialectName::Smb302),
        "SMB3" | "SMB3_11" => Ok(DialectName::Smb311),
        "CORE" | "COREPLUS" | "LANMAN1" | "LANMAN2" | "NT1" => Err("SMB1 is absent"),
        _ => Err("it is no dialect that Frevo knows"),
    }
}

fn dialects(global: &Section, report: &mut Report, toml: &mut String) {
    let keys: [(&str, &[&str]); 2] = [
        ("min_dialect", &["server min protocol", "min protocol"]),
        ("max_dialect", &["server max protocol", "max protocol", "protocol"]),
    ];
    for (key, names) in keys {
        let Some(value) = global.value(names) else { continue };
        match dialect(value) {
            Ok(dialect) => line(toml, key, &quoted(dialect.as_str())),
            Err(why) => report.dropped("global", &format!("{} = {value}", names[0]), why),
        }
    }
    if global.value(&["server min protocol", "min protocol"]).is_none() {
        report.note("global", "clients older than SMB 3.0 are refused; see min_dialect");
    }
}

fn protection(global: &Section, report: &mut Report, toml: &mut String) {
    let signing = global.value(&["server signing"]).map(str::to_ascii_lowercase);
    match signing.as_deref() {
        None | Some("mandatory" | "required") => {}
        Some("auto" | "default" | "enabled" | "yes") => line(toml, "signing", "\"offered\""),
        Some(value) => {
            let what = format!("server signing = {value}");
            report.dropped("global", &what, "signing cannot be switched off; it stays required");
        }
    }
    if let Some(value) = global.value(&["server smb encrypt", "smb encrypt"]) {
        match encryption(value) {
            Some("required") => line(toml, "encryption", "\"required\""),
            Some(choice) => line(toml, "encryption", &quoted(choice)),
            None => report.dropped("global", &format!("smb encrypt = {value}"), "no such value"),
        }
    } else {
        report.note("global", "encryption is required from all; see encryption");
    }
}

/// Frevo's word for Samba's.
pub(super) fn encryption(value: &str) -> Option<&'static str> {
    match value.to_ascii_lowercase().as_str() {
        "required" | "mandatory" | "desired+required" => Some("required"),
        "desired" | "if_required" | "default" | "auto" | "enabled" => Some("offered"),
        "off" | "disabled" => Some("off"),
        other => truth(other).map(|yes| if yes { "offered" } else { "off" }),
    }
}

fn rest(name: &str, value: &str, report: &mut Report) {
    if LOOKED_AT.contains(&name) || super::share::is_share_parameter(name) {
        return;
    }
    if let Some((_, why)) = WITHOUT_EQUAL.iter().find(|(parameter, _)| *parameter == name) {
        report.dropped("global", name, why);
        return;
    }
    match name {
        "include" | "config backend" | "registry shares" => report.dropped(
            "global",
            &format!("{name} = {value}"),
            "other files are not read; run `testparm -s` and import what it prints",
        ),
        _ if name.starts_with("idmap ") || name.starts_with("winbind ") => {
            report.dropped("global", name, "there is no Active Directory yet");
        }
        _ if name.contains(':') => {
            report.dropped("global", name, "it is for one of Samba's modules")
        }
        _ => report.dropped("global", name, "Frevo has nothing like it"),
    }
}

pub(super) fn line(toml: &mut String, key: &str, value: &str) {
    // Writing to a String does not fail.
    let _ = writeln!(toml, "{key} = {value}");
}

/// A TOML string.
pub(super) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
