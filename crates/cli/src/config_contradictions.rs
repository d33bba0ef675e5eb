//! Keys of shares that contradict others, or have no effect because of them.

use frevo_config::{
    AuditedOperation, Config, DialectName, EncryptionChoice, ShareSection, StreamsChoice, Who,
};
use frevo_wire::fscc::eq_ignore_case;

use crate::config_sources::Sources;
use crate::findings::{Finding, place_of_administrators};

/// The contradictions of all shares.
pub(crate) fn find(config: &Config, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut administrators = config.server.administrators().iter();
    if let Some(why) = no_domain_users(config)
        && let Some(who) = administrators.find(|who| who.domain().is_some())
    {
        let place = place_of_administrators(config, sources);
        let text = format!("administrators has {who}, but {why}");
        findings.push(Finding { place, is_fault: true, text });
    }
    for share in &config.shares {
        for (key, why) in of_share(share, config) {
            let place = sources.place_of_key(&share.name.span(), key);
            let text = format!("share {}: {why}", share.name.get_ref());
            findings.push(Finding { place, is_fault: true, text });
        }
    }
    findings
}

/// The first user or group that is in both lists.
fn in_both(a: &[Who], b: &[Who]) -> Option<String> {
    let is_in_b = |who: &&Who| b.iter().any(|other| eq_ignore_case(other.as_str(), who.as_str()));
    a.iter().find(is_in_b).map(|who| who.as_str().to_owned())
}

/// The reason why no user of a domain can log on. None if they can.
fn no_domain_users(config: &Config) -> Option<&'static str> {
    let winbind = config.server.winbind_domains.as_ref();
    let passes_on = winbind.is_some_and(|domains| !domains.get_ref().is_empty());
    match &config.kerberos {
        kerberos if kerberos.realms.is_some() => Some(
            "realms of [kerberos] makes users of domains accounts; write the name of the account",
        ),
        kerberos if kerberos.keytab.is_none() && !passes_on => Some(
            "no user of a domain can log on; set keytab of [kerberos], or winbind_domains of [server]",
        ),
        _ => None,
    }
}

/// Names of domains whose users cannot log on.
fn of_domain_names(share: &ShareSection, config: &Config) -> Vec<(&'static str, String)> {
    let Some(why) = no_domain_users(config) else { return Vec::new() };
    let lists = [
        ("allow", &share.allow),
        ("deny", &share.deny),
        ("read_list", &share.read_list),
        ("write_list", &share.write_list),
    ];
    let named = lists.into_iter().filter_map(|(key, list)| {
        let who = list.iter().find(|who| who.domain().is_some())?;
        Some((key, format!("{key} has {who}, but {why}")))
    });
    named.collect()
}

/// The contradictions of one share: the key to change, and the reason.
pub(crate) fn of_share(share: &ShareSection, config: &Config) -> Vec<(&'static str, String)> {
    let server = &config.server;
    let mut found = of_domain_names(share, config);
    let mut when = |holds: bool, key: &'static str, why: &str| {
        if holds {
            found.push((key, why.to_owned()));
        }
    };
    let is_written = !share.read_only || !share.write_list.is_empty();
    when(
        server.read_only == Some(true) && !share.write_list.is_empty(),
        "write_list",
        "write_list has no effect, because read_only of [server] is true",
    );
    when(
        share.encrypt && server.encryption == Some(EncryptionChoice::Off),
        "encrypt",
        "encrypt = true, but encryption of [server] is \"off\": no client could connect",
    );
    when(
        share.encrypt && server.max_dialect.is_some_and(|d| (d as u8) < DialectName::Smb30 as u8),
        "encrypt",
        "encrypt = true, but max_dialect is below 3.0, which cannot encrypt",
    );
    when(
        share.time_machine_max_size.is_some() && !share.time_machine,
        "time_machine_max_size",
        "time_machine_max_size has no effect without time_machine = true",
    );
    when(
        share.time_machine && !is_written,
        "time_machine",
        "time_machine = true, but nobody may write to the share",
    );
    when(
        share.recycle.is_some() && (!is_written || server.read_only == Some(true)),
        if share.keep_deleted.is_some() { "keep_deleted" } else { "recycle" },
        "recycle, or keep_deleted, has no effect, because nobody may delete in the share; remove one of it and \
         read_only",
    );
    when(
        share.time_machine && share.streams == Some(StreamsChoice::Off),
        "streams",
        "time_machine = true, but macOS needs streams, which are \"off\"",
    );
    when(
        !share.read_only && !share.write_list.is_empty() && share.read_list.is_empty(),
        "write_list",
        "write_list has no effect, because everybody may write; did you mean read_only = true?",
    );
    when(
        // The default of `audit` is Acl only. So a share with the default has set nothing that
        // needs the section [audit].
        share.audit.iter().flatten().any(|one| *one != AuditedOperation::Acl)
            && !config.audit.is_kept(),
        "audit",
        "audit has no effect, because [audit] names no file, journald or syslog",
    );
    for (a, b, key, lists) in [
        (&share.allow, &share.deny, "deny", "allow and deny"),
        (&share.read_list, &share.write_list, "read_list", "read_list and write_list"),
    ] {
        if let Some(who) = in_both(a, b) {
            found.push((key, format!("{who} is in {lists}; remove it from one of them")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contradictions(server: &str, share: &str) -> Vec<&'static str> {
        let text = format!("[server]\n{server}\n[[share]]\nname = \"a\"\npath = \"/a\"\n{share}\n");
        let config = Config::parse(&text).unwrap();
        of_share(&config.shares[0], &config).into_iter().map(|(key, _)| key).collect()
    }

    /// A share in which one user may delete.
    const RECYCLED: &str = "recycle = true\nread_only = true\nwrite_list = [\"ann\"]";

    #[test]
    fn contradictions_between_keys_are_found() {
        for (server, share, key) in [
            ("read_only = true", "read_only = true\nwrite_list = [\"ann\"]", "write_list"),
            ("encryption = \"off\"", "encrypt = true", "encrypt"),
            ("encryption = \"offered\"\nmax_dialect = \"2.1\"", "encrypt = true", "encrypt"),
            ("", "time_machine_max_size = \"1T\"", "time_machine_max_size"),
            ("", "time_machine = true\nread_only = true", "time_machine"),
            ("", "time_machine = true\nstreams = \"off\"", "streams"),
            ("", "write_list = [\"ann\"]", "write_list"),
            ("", "read_only = true\nrecycle = true", "recycle"),
            ("read_only = true", "recycle = true", "recycle"),
            ("", "audit = [\"open\"]", "audit"),
            ("", "allow = [\"ann\"]\ndeny = [\"ANN\"]", "deny"),
            ("", "read_list = [\"@it\"]\nwrite_list = [\"@it\"]", "read_list"),
        ] {
            assert_eq!(contradictions(server, share), [key], "{server} {share}");
        }
        for share in
            ["", "read_only = true\nwrite_list = [\"ann\"]", "time_machine = true", RECYCLED]
        {
            assert_eq!(contradictions("", share), [""; 0], "{share}");
        }
    }
}
