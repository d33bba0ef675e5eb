//! `frevo check --resolved`: all keys of a configuration with their values.

use std::fmt::Write as _;

/// The document that has the default of each key.
const DOCUMENT: &str = include_str!("../../../docs/configuration.md");

/// A key, and its default as the document has it.
struct Default<'a> {
    key: &'a str,
    default: &'a str,
}

/// The keys of a section, in the order of the document.
fn defaults<'a>(section: &'a str) -> Vec<Default<'a>> {
    let heading = format!("## `{section}`");
    let from = DOCUMENT.split(&*heading).nth(1).unwrap_or_default();
    let table = from.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    let head = table.lines().find(|line| line.starts_with("| key"));
    let at = head.and_then(|head| cells(head).iter().position(|cell| *cell == "default"));
    rows.filter_map(|row| {
        let cells = cells(row);
        let key = cells.first()?.trim_matches('`');
        let default = at.and_then(|at| cells.get(at)).copied().unwrap_or_default();
        Some(Default { key, default })
    })
    .collect()
}

/// The cells of a row. A bar behind a backslash is part of its cell.
fn cells(row: &str) -> Vec<&str> {
    let (mut cells, mut start) = (Vec::new(), 1);
    for (at, _) in row.match_indices('|').filter(|(at, _)| *at > 0) {
        if !row[..at].ends_with('\\') {
            cells.push(row[start..at].trim());
            start = at + 1;
        }
    }
    cells
}

/// Writes one section: values of the file as they are, defaults with a mark.
fn write_section(out: &mut String, header: &str, table: Option<&toml::Table>) {
    let _ = writeln!(out, "{header}");
    let known = defaults(header);
    for Default { key, default } in &known {
        let literal = default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
        let literal = literal.filter(|text| format!("a = {text}").parse::<toml::Table>().is_ok());
        let _ = match (table.and_then(|table| table.get(*key)), literal) {
            (Some(toml::Value::Integer(mode)), _) if key.ends_with("_mode") => {
                writeln!(out, "{key} = 0o{mode:o}")
            }
            (Some(value), _) => writeln!(out, "{key} = {value}"),
            (None, Some(literal)) => writeln!(out, "{key} = {literal} # default"),
            // `users` is an alias of another key, so it is not printed.
            (None, None) if *key == "users" => Ok(()),
            (None, None) if default.is_empty() => writeln!(out, "# {key}: not set"),
            (None, None) => writeln!(out, "# {key}: {default}"),
        };
    }
    // These keys belong to this table but are documented in another section.
    for (key, value) in table.into_iter().flatten() {
        if !known.iter().any(|known| known.key == key) {
            let _ = writeln!(out, "{key} = {value}");
        }
    }
    out.push('\n');
}

/// The effective configuration of the tables of all files.
pub(crate) fn text(table: &toml::Table) -> String {
    let mut out = String::new();
    const SECTIONS: [&str; 11] = [
        "server",
        "limits",
        "audit",
        "admin",
        "passwords",
        "kerberos",
        "ldap",
        "rpc",
        "quic",
        "traces",
        "cluster",
    ];
    for section in SECTIONS {
        let values = table.get(section).and_then(toml::Value::as_table);
        // A server is a node of a cluster, or asks a directory, if it has this section, so it is not made of
        // defaults.
        if matches!(section, "cluster" | "ldap") && values.is_none() {
            let _ = writeln!(out, "# [{section}]: not set\n");
            continue;
        }
        write_section(&mut out, &format!("[{section}]"), values);
    }
    for section in
        ["interface", "idmap", "share", "namespace", "site", "rate", "storage_qos", "user"]
    {
        let list = table.get(section).and_then(toml::Value::as_array);
        for one in list.into_iter().flatten() {
            write_section(&mut out, &format!("[[{section}]]"), one.as_table());
        }
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use frevo_config::{Config, keys};

    #[test]
    fn every_key_is_shown() {
        let table = "[server]\nname = \"A\"\nuser_map = { a = \"b\" }\n[[share]]\nname = \"x\"\npath = \"/x\"\n\
                     [[share]]\nname = \"y\"\npath = \"/y\"\nread_only = true\n\
                     [[namespace]]\nname = \"z\"\n[[namespace.link]]\npath = 'a'\ntargets = ['\\\\s\\t']\n\
                     [[site]]\nname = \"s\"\n[[rate]]\nname = \"r\"\noperations = 9\n[[storage_qos]]\nname = \"q\"\nid = \"04b4f24e-b3e9-4594-adaa-e327528de54b\"\niops = 9\n[[idmap]]\ndomain_sid = \"S-1-5-21-1-2-3\"\nrange = \"100000-199999\"\n\
                     [ldap]\nurls = [\"ldapi:/l\"]\nbase = \"dc=x\"\n\
                     [cluster]\nname = \"c\"\nendpoints = [\"http://192.0.2.1:2379\"]\n";
        let text = super::text(&table.parse().unwrap());
        for (section, keys) in keys() {
            // These tables are printed as the value of a key, so their own keys are not checked one
            // by one.
            if [
                "the file",
                "[[interface]]",
                "[[user]]",
                "[share.recycle]",
                "[share.snapshots]",
                "[share.brake]",
                "[share.worm]",
                "[share.home]",
                "[share.scan]",
                "[[namespace.link]]",
            ]
            .contains(&section)
            {
                continue;
            }
            for key in keys.iter().filter(|key| *key != "users") {
                let is_shown =
                    text.contains(&format!("\n{key} = ")) || text.contains(&format!("\n# {key}: "));
                assert!(is_shown, "{section} {key} not in\n{text}");
            }
        }
        // The printed text, parsed again, means the same as the configuration.
        let config = Config::parse(&text).unwrap_or_else(|faults| panic!("{faults:?} in\n{text}"));
        assert!(!config.shares[0].read_only && config.shares[1].read_only);
        assert_eq!(config.server.name.unwrap().as_str(), "A");
        assert_eq!(config.idmaps.len(), 1);
        assert!(text.contains("min_dialect = \"3.0\" # default"), "{text}");
    }
}
