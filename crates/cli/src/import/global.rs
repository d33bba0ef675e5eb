//! `[global]` to `[server]`, `[limits]` and `[audit]`.

use std::fmt::Write as _;

use frevo_config::{DialectName, Listen, ListenOn, ServerName, nearest};

use super::conversion::Conversion;
use super::host_facts::UserMapFile;
use super::options::{self, Effect};
use super::pam::Pam;
use super::report::Weight;
use super::smb_conf::Parameter;
use super::toml_text::{encryption, line, quoted};
use super::words::list;
use super::{domain, guests, hosts, ldap, modules, pam, share_modules};

/// The sections of the server that go with `[global]`.
pub(super) fn convert(conversion: &mut Conversion<'_>) -> String {
    let mut toml = String::from("\n[server]\n");
    name(conversion, &mut toml);
    listen(conversion, &mut toml);
    dialects(conversion, &mut toml);
    protection(conversion, &mut toml);
    guests::write_server(conversion, &mut toml);
    user_map(conversion, &mut toml);
    domain::server_keys(conversion, &mut toml);
    discovery(conversion, &mut toml);
    limits(conversion, &mut toml);
    if conversion.conf.shares().any(|section| share_modules::is_audited(section, conversion)) {
        toml.push_str("\n[audit]\nsyslog = true\n");
    }
    toml.push_str(&domain::sections(conversion));
    toml.push_str(&ldap::section(conversion));
    for parameter in &conversion.global.parameters {
        // If a parameter occurs several times, only its last occurrence is converted.
        if conversion.global.parameter(&parameter.name) == Some(parameter) {
            rest(parameter, conversion);
        }
    }
    toml
}

fn name(conversion: &mut Conversion<'_>, toml: &mut String) {
    let (global, report) = (conversion.global, &mut conversion.report);
    if let Some(parameter) = global.parameter("netbios name") {
        match parameter.value.parse::<ServerName>() {
            Ok(name) => line(toml, "name", &quoted(name.as_str())),
            Err(why) => report.parameter(Weight::LeftOut, "global", parameter, &why),
        }
    }
    // Without `workgroup`, Samba and Frevo both use WORKGROUP, so nothing is written.
    if let Some(parameter) = global.parameter("workgroup").filter(|at| !at.value.is_empty()) {
        if parameter.value.contains('%') {
            let why = "% substitutions are not supported";
            report.parameter(Weight::LeftOut, "global", parameter, why);
        } else {
            line(toml, "workgroup", &quoted(&parameter.value));
        }
    }
    if let Some(parameter) = global.parameter("server string") {
        if parameter.value.contains('%') {
            let why = "% substitutions are not supported";
            report.parameter(Weight::LeftOut, "global", parameter, why);
        } else if !parameter.value.is_empty() {
            line(toml, "comment", &quoted(&parameter.value));
        }
    }
    if let Some(model) = global.value("fruit:model").filter(|model| !model.is_empty()) {
        line(toml, "model", &quoted(model));
    }
}

/// The ports of `smb ports`, or those of its successor `server smb transports`.
fn ports(conversion: &mut Conversion<'_>) -> Vec<u16> {
    let global = conversion.global;
    let transports = global.parameter("server smb transports");
    let Some(parameter) = transports.or_else(|| global.parameter("smb ports")) else {
        return Vec::new();
    };
    let mut ports: Vec<u16> = Vec::new();
    for word in list(&parameter.value.to_ascii_lowercase()) {
        let port = word.strip_prefix("tcp:").unwrap_or(&word);
        match port.parse() {
            Ok(port) if port != 139 => ports.push(port),
            _ if word == "tcp" => ports.push(445),
            _ => {
                let why = format!("{word} is not supported; Frevo listens on TCP without NetBIOS");
                conversion.report.parameter(Weight::Stricter, "global", parameter, &why);
            }
        }
    }
    if ports.is_empty() && transports.is_some() {
        conversion.refuse(parameter, "Frevo listens on TCP");
    }
    ports
}

/// Converts a word of `interfaces` to an entry of `listen`: to a network if it is the network's
/// first address, as Samba takes it, else to the address alone.
fn place(interface: &str) -> String {
    // In `interfaces`, the text after a semicolon is for multichannel only, so it is cut off.
    let place = interface.split(';').next().unwrap_or_default();
    let (address, mask) = place.split_once('/').unwrap_or((place, ""));
    match hosts::network(place) {
        Ok(network) if !mask.is_empty() && network.starts_with(&format!("{address}/")) => network,
        _ => address.to_owned(),
    }
}

fn listen(conversion: &mut Conversion<'_>, toml: &mut String) {
    let global = conversion.global;
    let ports = ports(conversion);
    let mut places = Vec::new();
    let interfaces = global.parameter("interfaces").filter(|parameter| !parameter.value.is_empty());
    if let Some(parameter) =
        interfaces.filter(|_| global.truth("bind interfaces only") == Some(true))
    {
        for interface in list(&parameter.value) {
            match place(&interface).parse::<Listen>() {
                Ok(Listen { on, port: None }) => places.push(on),
                _ => {
                    let why = format!(
                        "{interface} is neither an address nor the name of an interface; see listen"
                    );
                    conversion.report.parameter(Weight::Stricter, "global", parameter, &why);
                }
            }
        }
        if places.is_empty() {
            conversion.refuse(parameter, "no interface is left, and Frevo would listen on all");
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

fn dialects(conversion: &mut Conversion<'_>, toml: &mut String) {
    let (global, report) = (conversion.global, &mut conversion.report);
    let oldest = global.parameter("server min protocol").and_then(|parameter| {
        let dialect = dialect(&parameter.value);
        dialect.map_err(|why| report.parameter(Weight::Stricter, "global", parameter, why)).ok()
    });
    if let Some(dialect) = oldest {
        line(toml, "min_dialect", &quoted(dialect.as_str()));
    }
    if let Some(parameter) = global.parameter("server max protocol") {
        let rank = |dialect: DialectName| dialect as u8;
        let lowest = rank(oldest.unwrap_or(DialectName::Smb30)).max(rank(DialectName::Smb30));
        match dialect(&parameter.value) {
            // A highest dialect below SMB 3.0 would make encryption impossible; one below the
            // lowest dialect would let no client connect.
            Ok(newest) if rank(newest) < lowest => {
                let why = "clients may use newer dialects too, because older ones cannot encrypt; see \
                           max_dialect";
                report.parameter(Weight::LeftOut, "global", parameter, why);
            }
            Ok(newest) => line(toml, "max_dialect", &quoted(newest.as_str())),
            Err(why) => report.parameter(Weight::LeftOut, "global", parameter, why),
        }
    }
    if global.value("server min protocol").is_none() {
        let what = "clients older than SMB 3.0 are refused; see min_dialect";
        report.note(Weight::Stricter, "global", what);
    }
}

fn protection(conversion: &mut Conversion<'_>, toml: &mut String) {
    let (global, report) = (conversion.global, &mut conversion.report);
    match global.parameter("server signing") {
        None => {
            let what = "messages must be signed; see signing";
            report.note(Weight::Stricter, "global", what);
        }
        Some(parameter) => match parameter.value.to_ascii_lowercase().as_str() {
            "mandatory" | "required" => {}
            "auto" | "default" | "enabled" | "yes" => line(toml, "signing", "\"offered\""),
            _ => {
                let why = "signing cannot be switched off; it stays required";
                report.parameter(Weight::Stricter, "global", parameter, why);
            }
        },
    }
    match global.parameter("server smb encrypt") {
        None if conversion.lets_guests_in => {
            let what = "clients must encrypt, but in shares for guests; see encryption and encrypt";
            report.note(Weight::Stricter, "global", what);
        }
        None => {
            let what = "clients must encrypt; see encryption";
            report.note(Weight::Stricter, "global", what);
        }
        Some(parameter) => match encryption(&parameter.value) {
            Some(choice) => line(toml, "encryption", &quoted(choice)),
            None => {
                let why = "unknown value; encryption stays required";
                report.parameter(Weight::Stricter, "global", parameter, why);
            }
        },
    }
    let algorithms: [(&str, &str, Algorithms); 2] = [
        ("ciphers", "server smb3 encryption algorithms", CIPHERS),
        ("signing_algorithms", "server smb3 signing algorithms", SIGNING_ALGORITHMS),
    ];
    for (key, name, words) in algorithms {
        let Some(parameter) = global.parameter(name) else { continue };
        match algorithm_list(&parameter.value, words) {
            Ok(chosen) => {
                let chosen: Vec<String> = chosen.iter().map(|word| quoted(word)).collect();
                line(toml, key, &format!("[{}]", chosen.join(", ")));
            }
            Err(why) => conversion.refuse(parameter, &why),
        }
    }
}

/// Samba's names of algorithms, in its order, and Frevo's.
type Algorithms = &'static [(&'static str, &'static str)];

/// Samba's names of ciphers, in its order, and Frevo's.
const CIPHERS: Algorithms = &[
    ("aes-128-gcm", "aes-128-gcm"),
    ("aes-128-ccm", "aes-128-ccm"),
    ("aes-256-gcm", "aes-256-gcm"),
    ("aes-256-ccm", "aes-256-ccm"),
];

/// Samba's names of signing algorithms, in its order, and Frevo's.
const SIGNING_ALGORITHMS: Algorithms =
    &[("aes-128-gmac", "aes-gmac"), ("aes-128-cmac", "aes-cmac"), ("hmac-sha256", "hmac-sha256")];

/// A list of algorithms. Words with a minus are taken from Samba's default, with a plus added.
fn algorithm_list(value: &str, words: Algorithms) -> Result<Vec<&'static str>, String> {
    let said = list(&value.to_ascii_lowercase());
    let changes = said.first().is_some_and(|word| word.starts_with(['-', '+']));
    let mut chosen: Vec<&'static str> =
        if changes { words.iter().map(|(_, ours)| *ours).collect() } else { Vec::new() };
    for word in &said {
        let bare = word.trim_start_matches(['-', '+']);
        let (_, ours) = words
            .iter()
            .find(|(theirs, _)| *theirs == bare)
            .ok_or_else(|| format!("{word} is not known"))?;
        if word.starts_with('-') {
            chosen.retain(|known| known != ours);
        } else if !chosen.contains(ours) {
            chosen.push(ours);
        }
    }
    if chosen.is_empty() { Err(String::from("no algorithm is left")) } else { Ok(chosen) }
}

fn user_map(conversion: &mut Conversion<'_>, toml: &mut String) {
    let parameter = conversion.global.parameter("username map");
    let Some(parameter) = parameter.filter(|parameter| !parameter.value.is_empty()) else { return };
    let path = &parameter.value;
    if !path.starts_with('/') || path.contains('%') {
        conversion.refuse(parameter, "the path is not absolute, or has a % substitution");
        return;
    }
    match &conversion.host.user_map {
        UserMapFile::Usable => line(toml, "user_map_file", &quoted(path)),
        UserMapFile::Missing => {
            let why = "there is no such file here, so Samba goes on without it; write user_map_file \
                       where there is one";
            conversion.report.parameter(Weight::LeftOut, "global", parameter, why);
        }
        UserMapFile::Faulty(fault) => {
            let why = format!("{fault}; mend that file");
            conversion.refuse(parameter, &why);
        }
    }
}

/// Samba announces the server by Avahi, unless that is switched off.
fn discovery(conversion: &Conversion<'_>, toml: &mut String) {
    if conversion.global.truth("multicast dns register") == Some(false) {
        line(toml, "discovery", "\"off\"");
    }
}

fn limits(conversion: &mut Conversion<'_>, toml: &mut String) {
    let keys = [("connections", "max smbd processes"), ("idle_session_minutes", "deadtime")];
    let mut section = String::new();
    for (key, name) in keys {
        let Some(parameter) = conversion.global.parameter(name) else { continue };
        match parameter.value.parse::<u32>() {
            Ok(0) => {}
            Ok(number) => line(&mut section, key, &number.min(MINUTES_MAX).to_string()),
            Err(_) if key == "connections" => conversion.refuse(parameter, "it is not a number"),
            Err(_) => {
                let why = "it is not a number; see idle_session_minutes";
                conversion.report.parameter(Weight::LeftOut, "global", parameter, why);
            }
        }
    }
    if !section.is_empty() {
        let _ = write!(toml, "\n[limits]\n{section}");
    }
}

/// The largest `idle_session_minutes`: a year.
const MINUTES_MAX: u32 = 527_040;

fn rest(parameter: &Parameter, conversion: &mut Conversion<'_>) {
    match &*parameter.name {
        "ntlm auth" => ntlm(parameter, conversion),
        "obey pam restrictions" => pam_rules(parameter, conversion),
        _ if ldap::is_converted(parameter, conversion.global) => {}
        "security" | "server role" if conversion.names.is_member() => {
            let why =
                "users of the domain are named with it; local accounts are those of `frevo user`";
            conversion.report.parameter(Weight::Harmless, "global", parameter, why);
        }
        _ => by_table(parameter, conversion),
    }
}

fn ntlm(parameter: &Parameter, conversion: &mut Conversion<'_>) {
    match parameter.value.to_ascii_lowercase().as_str() {
        "disabled" => conversion.refuse(
            parameter,
            "it takes a keytab: add the section [kerberos], and ntlm = false to [server]",
        ),
        "yes" | "ntlmv1-permitted" | "mschapv2-and-ntlmv2-only" => conversion.report.parameter(
            Weight::Stricter,
            "global",
            parameter,
            "only NTLMv2 is supported",
        ),
        _ => {}
    }
}

/// PAM's rules for accounts. Those of a usual host are about the end of Unix accounts, which
/// `frevo user import` obeys.
fn pam_rules(parameter: &Parameter, conversion: &mut Conversion<'_>) {
    if conversion.global.truth(&parameter.name) == Some(false) {
        return;
    }
    match &conversion.host.pam {
        Pam::Plain => {
            let why =
                "PAM is not asked; `frevo user import` disables accounts whose Unix accounts end";
            conversion.report.parameter(Weight::LeftOut, "global", parameter, why);
        }
        Pam::Restricting(module) => {
            let why = format!(
                "{module} in {}/samba may refuse users that Frevo lets in; refuse them by deny or \
                 hosts_deny",
                pam::FOLDER
            );
            conversion.refuse(parameter, &why);
        }
        Pam::Unknown => {
            let why = "PAM may refuse users that Frevo lets in, such as expired accounts, and its \
                       rules for Samba are not on this host";
            conversion.refuse(parameter, why);
        }
    }
}

fn by_table(parameter: &Parameter, conversion: &mut Conversion<'_>) {
    let (name, value) = (&*parameter.name, &*parameter.value);
    if let Some(row) = options::of_global(name) {
        match row.effect {
            Effect::Opens if row.applies_to(value) => conversion.refuse(parameter, row.why),
            effect => report_row(parameter, effect, row.applies_to(value), row.why, conversion),
        }
    } else if name == "vfs objects" {
        let global = conversion.global;
        let options = |name: &str| global.parameter(name);
        share_modules::report_modules("global", parameter, &mut conversion.report);
        share_modules::tell_defaults("global", parameter, &options, &mut conversion.report);
    } else if let Some(row) = options::of_share(name) {
        // Options with the effect `Opens` are reported with each share, not here.
        if row.effect != Effect::Opens {
            report_row(parameter, row.effect, row.applies_to(value), row.why, conversion);
        }
    } else if name.starts_with("idmapconfig") && conversion.names.is_member() {
        // The back end of a domain is reported with its section [[idmap]], not here.
        if !name.ends_with(":backend") || name.starts_with("idmapconfig*") {
            conversion.report.parameter(Weight::Harmless, "global", parameter, "see [[idmap]]");
        }
    } else if name.contains(':') {
        let loaded = |module: &str| conversion.loads(None, module);
        match modules::option(name, value, loaded) {
            // An option of a known module is reported with each share, not here.
            (Effect::Opens, why) if !modules::is_known(name) => conversion.refuse(parameter, why),
            (Effect::Opens, _) => {}
            (effect, why) => report_row(parameter, effect, true, why, conversion),
        }
    } else if conversion.is_ignored(name) {
        let why = "the Samba of this host does not know the option either, and ignores it";
        conversion.report.parameter(Weight::LeftOut, "global", parameter, why);
    } else {
        let near = nearest(name, options::names());
        let near = near.map_or_else(String::new, |near| format!("; did you mean `{near}`?"));
        let why = format!("unknown to Frevo, as is whether it restricts users{near}");
        conversion.refuse(parameter, &why);
    }
}

fn report_row(
    parameter: &Parameter,
    effect: Effect,
    applies: bool,
    why: &str,
    conversion: &mut Conversion<'_>,
) {
    let weight = Weight::of(effect).filter(|weight| applies || *weight == Weight::Harmless);
    if let Some(weight) = weight {
        conversion.report.parameter(weight, "global", parameter, why);
    }
}
