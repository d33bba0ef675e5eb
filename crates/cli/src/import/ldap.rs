//! `passdb backend = ldapsam:...`: the directory that Samba has its accounts in.

use frevo_config::LdapUrl;

use super::conversion::Conversion;
use super::report::Weight;
use super::smb_conf::{Parameter, Section};
use super::toml_text::{line, quoted};

/// The file for the password of `ldap admin dn`.
const PASSWORD_FILE: &str = "/etc/frevo/ldap.password";
/// The server of `ldapsam` without a URL.
const USUAL: &str = "ldap://localhost";
/// Options that the section stands for.
const CONVERTED: [&str; 8] = [
    "passdb backend",
    "ldap admin dn",
    "ldap suffix",
    "ldap user suffix",
    "ldap group suffix",
    "ldap ssl",
    "ldap timeout",
    "ldapsam:trusted",
];

/// The words behind `ldapsam:` of `passdb backend`. None for another back end.
fn back_end(global: &Section) -> Option<(&Parameter, Vec<String>)> {
    let parameter = global.parameter("passdb backend")?;
    let value = parameter.value.trim();
    let rest = value.strip_prefix("ldapsam").or_else(|| value.strip_prefix("LDAPSAM"))?;
    let urls = rest.trim_start_matches(':').trim().trim_matches('"');
    let mut urls: Vec<String> = urls.split_whitespace().map(String::from).collect();
    if urls.is_empty() {
        urls.push(USUAL.to_owned());
    }
    Some((parameter, urls))
}

/// True for an option that `[ldap]` stands for.
pub(super) fn is_converted(parameter: &Parameter, global: &Section) -> bool {
    CONVERTED.contains(&&*parameter.name) && back_end(global).is_some()
}

/// The section `[ldap]`; an empty text for accounts that are elsewhere.
pub(super) fn section(conversion: &mut Conversion<'_>) -> String {
    let global = conversion.global;
    let Some((parameter, words)) = back_end(global) else { return String::new() };
    let mut urls: Vec<LdapUrl> = Vec::new();
    for word in &words {
        match word.parse() {
            Ok(url) => urls.push(url),
            Err(why) => conversion.report.parameter(Weight::LeftOut, "global", parameter, &why),
        }
    }
    let suffix = global.value("ldap suffix").map(str::trim).unwrap_or_default();
    if urls.is_empty() || suffix.is_empty() {
        let why = "the section [ldap] needs the servers, and the suffix of `ldap suffix`";
        conversion.report.parameter(Weight::LeftOut, "global", parameter, why);
        return String::new();
    }
    let mut toml = String::from("\n[ldap]\n");
    let shown: Vec<String> = urls.iter().map(|url| quoted(&url.to_string())).collect();
    line(&mut toml, "urls", &format!("[{}]", shown.join(", ")));
    line(&mut toml, "base", &quoted(suffix));
    for (option, key) in [("ldap user suffix", "user_base"), ("ldap group suffix", "group_base")] {
        let part = global.value(option).map(str::trim).filter(|part| !part.is_empty());
        if let Some(part) = part {
            line(&mut toml, key, &quoted(&format!("{part},{suffix}")));
        }
    }
    if let Some(dn) = global.value("ldap admin dn").filter(|dn| !dn.trim().is_empty()) {
        line(&mut toml, "bind_dn", &quoted(dn.trim()));
        line(&mut toml, "password_file", &quoted(PASSWORD_FILE));
        let what = format!(
            "write the password of the entry that asks the directory into {PASSWORD_FILE} (mode \
             0600; Samba has it in secrets.tdb); an entry that may only read is safer than the \
             `ldap admin dn`"
        );
        conversion.report.note(Weight::Stricter, "global", &what);
    }
    protection(&urls, conversion, &mut toml);
    let seconds = global.value("ldap timeout").and_then(|text| text.trim().parse::<u32>().ok());
    if let Some(seconds) = seconds.filter(|seconds| (1..=15).contains(seconds)) {
        line(&mut toml, "timeout_seconds", &seconds.to_string());
    }
    let what = "accounts of the directory log on by their sambaNTPassword; Frevo only reads it, so users \
                change their passwords there";
    conversion.report.note(Weight::LeftOut, "global", what);
    toml
}

/// `ldap ssl`: with `off` the hash of a password goes over the network as it is, which Frevo does on this host
/// alone.
fn protection(urls: &[LdapUrl], conversion: &mut Conversion<'_>, toml: &mut String) {
    let option = conversion.global.parameter("ldap ssl");
    let is_off = option.is_some_and(|parameter| {
        matches!(&*parameter.value.trim().to_ascii_lowercase(), "off" | "no" | "false" | "0")
    });
    let is_plain = |url: &&LdapUrl| matches!(url, LdapUrl::Tcp { is_secure: false, .. });
    let mut plain = urls.iter().filter(is_plain).peekable();
    if !is_off || plain.peek().is_none() {
        return;
    }
    if plain.all(LdapUrl::is_local) {
        line(toml, "starttls", "false");
    } else if let Some(parameter) = option {
        let why = "Frevo asks the directory over TLS (StartTLS); without it set starttls = false and \
                   cleartext = true in [ldap]";
        conversion.report.parameter(Weight::Stricter, "global", parameter, why);
    }
}
