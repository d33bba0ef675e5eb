//! A member of a domain: its keytab, winbind, and the numbers of users.

use std::path::PathBuf;

use frevo_config::Numbers;

use super::conversion::Conversion;
use super::report::Weight;
use super::smb_conf::{Parameter, Section};
use super::toml_text::{line, quoted};

/// The system's keytab.
const SYSTEM_KEYTAB: &str = "/etc/krb5.keytab";

/// The keytab of an smb.conf; None where Samba has the keys in its own database only.
pub(super) fn keytab(global: &Section) -> Option<PathBuf> {
    let method = global.value("kerberos method").unwrap_or_default().to_ascii_lowercase();
    if !method.contains("keytab") {
        return None;
    }
    let named = global.value("dedicated keytab file").filter(|path| path.starts_with('/'));
    Some(PathBuf::from(named.unwrap_or(SYSTEM_KEYTAB)))
}

/// Writes the keys of `[server]` for users of the domain.
pub(super) fn server_keys(conversion: &mut Conversion<'_>, toml: &mut String) {
    let names = &conversion.names;
    if !names.is_member() {
        return;
    }
    let domains: Vec<String> = [Some(&names.workgroup), names.realm.as_ref()]
        .into_iter()
        .flatten()
        .map(|n| quoted(n))
        .collect();
    line(toml, "winbind_domains", &format!("[{}]", domains.join(", ")));
    let what = "users of the domain log on by NTLM as long as winbindd and its smb.conf stay on this \
                host (winbind_domains), and clients must name the domain (DOMAIN\\user)";
    conversion.report.note(Weight::Stricter, "global", what);
}

/// The sections for users of the domain.
pub(super) fn sections(conversion: &mut Conversion<'_>) -> String {
    let mut toml = String::new();
    if !conversion.names.is_member() {
        return toml;
    }
    match &conversion.host.keytab {
        Some(keytab) => {
            toml.push_str("\n[kerberos]\n");
            line(&mut toml, "keytab", &quoted(&keytab.display().to_string()));
        }
        None => {
            let what = "users of the domain cannot log on by tickets until there is a keytab: run \
                        `frevo domain join`, or `net ads keytab create`, and write [kerberos] with keytab";
            conversion.report.note(Weight::Stricter, "global", what);
        }
    }
    for (domain, parameter) in back_ends(conversion.global) {
        toml.push_str(&idmap(&domain, parameter, conversion));
    }
    toml
}

/// The domains of `idmap config DOMAIN : backend`, in lower case, with that option.
fn back_ends(global: &Section) -> Vec<(String, &Parameter)> {
    let mut found: Vec<(String, &Parameter)> = Vec::new();
    for parameter in &global.parameters {
        let domain = parameter.name.strip_prefix("idmapconfig");
        let Some(domain) = domain.and_then(|rest| rest.strip_suffix(":backend")) else { continue };
        if global.parameter(&parameter.name) == Some(parameter) {
            found.push((domain.to_owned(), parameter));
        }
    }
    found
}

/// `[[idmap]]` of a domain. A comment where its SID is not known.
fn idmap(domain: &str, parameter: &Parameter, conversion: &mut Conversion<'_>) -> String {
    let global = conversion.global;
    let option = |name: &str| global.value(&format!("idmapconfig{domain}:{name}"));
    if domain == "*" {
        return String::new();
    }
    if !parameter.value.eq_ignore_ascii_case("rid") {
        let why = "Frevo asks the host's name service for the numbers of users: keep winbind or SSSD in \
                   nsswitch.conf";
        conversion.report.parameter(Weight::LeftOut, "global", parameter, why);
        return String::new();
    }
    let range = option("range").unwrap_or_default().replace(' ', "");
    if range.parse::<Numbers>().is_err() {
        let why = "its range is not one of numbers from 1000 on; see [[idmap]]";
        conversion.report.parameter(Weight::LeftOut, "global", parameter, why);
        return String::new();
    }
    let base =
        option("base_rid").and_then(|base| base.parse::<u32>().ok()).filter(|base| *base > 0);
    let own = conversion.names.workgroup.eq_ignore_ascii_case(domain);
    let sid = conversion.host.domain_sid.filter(|_| own);
    let mut lines = String::from("[[idmap]]\n");
    let shown = sid.map_or_else(|| String::from("S-1-5-21-A-B-C"), |sid| sid.to_string());
    line(&mut lines, "domain_sid", &quoted(&shown));
    line(&mut lines, "range", &quoted(&range));
    if let Some(base) = base {
        line(&mut lines, "base_rid", &base.to_string());
    }
    if sid.is_some() {
        return format!("\n{lines}");
    }
    let why = "the SID of the domain is not known here: write it into [[idmap]], which is a comment \
               (wbinfo --domain-info tells it), or give it with --domain-sid";
    conversion.report.parameter(Weight::LeftOut, "global", parameter, why);
    let commented: String = lines.lines().map(|line| format!("# {line}\n")).collect();
    format!("\n{commented}")
}
