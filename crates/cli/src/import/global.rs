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
    ("workgroup", "not needed; clients log on with the user name alone"),
    ("security", "Frevo has its own accounts"),
    ("server role", "Frevo is a standalone file server"),
    ("passdb backend", "import the accounts with: pdbedit -L -w | frevo user import -"),
    ("smb passwd file", "import the accounts with: frevo user import FILE"),
    ("encrypt passwords", "not needed; passwords are never sent unencrypted"),
    ("map to guest", "guests are not supported; everyone logs on"),
    ("null passwords", "empty passwords are not supported"),
    ("log file", "the log goes to standard error or to the journal; see log and log_level"),
    ("log level", "see log_level"),
    ("max log size", "limit the log in the journal, or with logrotate"),
    ("logging", "see log"),
    ("syslog", "see log"),
    ("syslog only", "see log"),
    ("panic action", "running programs is not supported"),
    ("load printers", "printing is not supported"),
    ("printing", "printing is not supported"),
    ("printcap name", "printing is not supported"),
    ("disable spoolss", "printing is not supported"),
    ("unix password sync", "not needed; Frevo's accounts are independent of Unix users"),
    ("passwd program", "not needed; Frevo's accounts are independent of Unix users"),
    ("passwd chat", "not needed; Frevo's accounts are independent of Unix users"),
    ("pam password change", "not needed; Frevo's accounts are independent of Unix users"),
    ("obey pam restrictions", "PAM is not supported"),
    ("usershare allow guests", "user shares and guests are not supported"),
    ("usershare max shares", "user shares are not supported"),
    ("usershare path", "user shares are not supported"),
    ("dns proxy", "the NetBIOS name service is not supported"),
    ("name resolve order", "the NetBIOS name service is not supported"),
    ("wins support", "the NetBIOS name service is not supported"),
    ("wins server", "the NetBIOS name service is not supported"),
    ("domain master", "the browsing service is not supported"),
    ("local master", "the browsing service is not supported"),
    ("preferred master", "the browsing service is not supported"),
    ("os level", "the browsing service is not supported"),
    ("disable netbios", "NetBIOS is not supported"),
    ("socket options", "not needed"),
    ("use sendfile", "not needed; Frevo uses the fastest method of the system"),
    ("aio read size", "not needed; Frevo uses the fastest method of the system"),
    ("aio write size", "not needed; Frevo uses the fastest method of the system"),
    ("min receivefile size", "not needed; Frevo uses the fastest method of the system"),
    ("getwd cache", "not needed"),
    ("deadtime", "see idle_session_minutes"),
    ("keepalive", "not needed; Frevo detects dead connections"),
    ("unix extensions", "SMB1 is not supported; for the SMB 3.1.1 extensions see posix"),
    ("ntlm auth", "only NTLMv2 is supported"),
    ("lanman auth", "only NTLMv2 is supported"),
    ("client min protocol", "only for Samba's clients"),
    ("client max protocol", "only for Samba's clients"),
    ("client signing", "only for Samba's clients"),
    ("realm", "Active Directory is not supported yet"),
    ("server multi channel support", "not needed; multichannel is always on"),
    ("winbind use default domain", "Active Directory is not supported yet"),
    ("template shell", "Active Directory is not supported yet"),
    ("template homedir", "Active Directory is not supported yet"),
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
            "the path is not absolute, or has a % substitution",
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
            report.dropped("global", "server string", "% substitutions are not supported");
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
        report.dropped("global", "smb ports 139", "NetBIOS is not supported");
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
        "CORE" | "COREPLUS" | "LANMAN1" | "LANMAN2" | "NT1" => Err("SMB1 is not supported"),
        _ => Err("unknown dialect"),
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
            None => report.dropped("global", &format!("smb encrypt = {value}"), "unknown value"),
        }
    } else {
        report.note("global", "encryption is required from all clients; see encryption");
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
            "other files are not read; run `testparm -s` and import its output",
        ),
        _ if name.starts_with("idmap ") || name.starts_with("winbind ") => {
            report.dropped("global", name, "Active Directory is not supported yet");
        }
        _ if name.contains(':') => {
            report.dropped("global", name, &super::share::module_option(name));
        }
        _ => report.dropped("global", name, "Frevo has no such setting"),
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
