//! The things that a look at a configuration finds, and their places.

use frevo_auth::AccountFile;
use frevo_config::Config;
use frevo_wire::fscc::fold_name;

use crate::config_sources::Sources;

/// One thing that a check found.
#[derive(Debug)]
pub(crate) struct Finding {
    /// The file or variable, and the line, from 1.
    pub(crate) place: (String, Option<usize>),
    /// True when the server would not start, or would not do what the key says.
    pub(crate) is_fault: bool,
    pub(crate) text: String,
}

impl Finding {
    pub(crate) fn shown(&self) -> String {
        let weight = if self.is_fault { "" } else { "warning: " };
        match &self.place {
            (name, Some(line)) => format!("{name}:{line}: {weight}{}", self.text),
            (name, None) => format!("{name}: {weight}{}", self.text),
        }
    }

    pub(crate) fn object(&self) -> serde_json::Value {
        let (name, line) = &self.place;
        let kind = if self.is_fault { "fault" } else { "warning" };
        serde_json::json!({ "file": name, "line": line, "kind": kind, "message": self.text })
    }
}

/// The place of the list `administrators`.
pub(crate) fn place_of_administrators(
    config: &Config,
    sources: &Sources,
) -> (String, Option<usize>) {
    let span = config.server.administrators.as_ref().map(toml::Spanned::span).unwrap_or_default();
    sources.place(&span)
}

/// The names of all accounts of a configuration, in lower case.
pub(crate) fn known_users(config: &Config, file: &AccountFile) -> Vec<String> {
    let own = config.users.iter().map(|user| fold_name(user.name.get_ref().as_str()));
    let with_password = file.entries().filter(|entry| entry.nt_hash.is_some());
    own.chain(with_password.map(|entry| fold_name(&entry.name))).collect()
}
