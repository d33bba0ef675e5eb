//! Changes of shares and limits of rate in the files of the configuration.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use frevo_admin::{Changed, Kind, Listed, NotManaged, Reason, SectionChange};
use frevo_config::{Config, ShareSection};
use frevo_wire::fscc::fold_name;
use serde_json::json;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table};

use super::{Files, commands, failed, outdated, unwritable, values};
use crate::config_review;
use crate::config_sources::Sources;
use crate::findings::Finding;
use crate::namespace_tables::is_called;
use crate::shares::{Edited, lock, may_be_added, replace};

/// A section of the configuration, and its place.
struct Section {
    name: String,
    file: String,
    line: Option<usize>,
    /// It was added over the network, and can have few keys.
    is_networked: bool,
}

/// The sections of a kind, in the order of the files.
fn sections_of(kind: Kind, config: &Config, sources: &Sources) -> Vec<Section> {
    let section = |name: String, span: &Range<usize>, is_networked| {
        let (file, line) = sources.place(span);
        Section { name, file, line, is_networked }
    };
    match kind {
        Kind::Rate => {
            let rates = config.rates.iter().map(|rate| &rate.name);
            rates.map(|name| section(name.get_ref().clone(), &name.span(), false)).collect()
        }
        _ => {
            let of_share = |share: &ShareSection| {
                let (name, span) = (share.name.get_ref().to_string(), share.name.span());
                section(name, &span, share.beneath.is_some())
            };
            config.shares.iter().map(of_share).collect()
        }
    }
}

impl Files {
    fn main_file(&self) -> Result<&Path, NotManaged> {
        self.config.as_deref().ok_or_else(|| {
            let why = "this server was started without a configuration file";
            NotManaged::new(Reason::ReadOnly, why)
        })
    }

    /// The revision of a configuration: that of what it says, so that comments do not count.
    fn revision_of(&self, sources: &Sources) -> String {
        self.revision(&format!("{:?}", sources.table()))
    }

    pub(super) fn list_sections(&self, kind: Kind) -> Result<Listed, NotManaged> {
        let file = self.main_file()?;
        let (sources, config) = self.read()?;
        let table = sources.table();
        let all = table.get(kind.name()).and_then(toml::Value::as_array);
        let keys = |name: &str| {
            let is_it = |one: &&toml::Value| {
                one.get("name").and_then(toml::Value::as_str).is_some_and(|of| of == name)
            };
            all.and_then(|all| all.iter().find(is_it)).map(values::json_of)
        };
        let row = |section: Section| {
            let Section { name, file, line, .. } = section;
            json!({ "name": name, "file": file, "line": line, "keys": keys(&name) })
        };
        let rows = sections_of(kind, &config, &sources).into_iter().map(row).collect();
        Ok(Listed {
            revision: self.revision_of(&sources),
            file: file.display().to_string(),
            read_only: unwritable(file),
            rows,
        })
    }

    pub(super) fn change_table(
        &self,
        kind: Kind,
        revision: &str,
        wanted: &SectionChange,
    ) -> Result<Changed, NotManaged> {
        let main = self.main_file()?;
        let (sources, config) = self.read()?;
        if self.revision_of(&sources) != revision {
            return Err(outdated());
        }
        let file = file_of(kind, wanted, &sections_of(kind, &config, &sources), main)?;
        let before = sources.text(&file.display().to_string()).unwrap_or_default().to_owned();
        if let Some(why) = unwritable(&file) {
            return Err(self.unwritten(kind, wanted, why));
        }
        if let Some(path) = new_folder(wanted).filter(|path| !may_be_added(&config, path)) {
            return Err(self.out_of_reach(kind, wanted, path));
        }
        let mut edited = Edited::open(&sources, file.clone()).map_err(failed)?;
        edit(&mut edited.document, kind, wanted)?;
        let after = edited.document.to_string();
        let warnings = review(&config, &sources, &file, &after, wanted)?;
        let _lock = lock(&sources, &file).map_err(failed)?.ok_or_else(outdated)?;
        if let Err(error) = replace(&file, &after) {
            let text = format!("{} was not written: {error}", file.display());
            return Err(NotManaged::new(Reason::Failed, text));
        }
        let texts = Texts { before: &before, after: &after };
        self.put_in_force(&file, &texts, wanted).map(|more| Changed {
            warnings: warnings.into_iter().chain(more).collect(),
            sessions: 0,
        })
    }

    /// Has the configuration read again. A refused one is taken back. Returns a warning about a share that is
    /// not served yet.
    fn put_in_force(
        &self,
        file: &Path,
        texts: &Texts<'_>,
        wanted: &SectionChange,
    ) -> Result<Option<String>, NotManaged> {
        if let Err(why) = self.configuration.reload_now() {
            texts.restore(file).map_err(|error| {
                let why = format!("{why}; and {} was not restored: {error}", file.display());
                NotManaged::new(Reason::Failed, why)
            })?;
            // The configuration from before is in force all the time; the reload ends its refusal.
            let _ = self.configuration.reload_now();
            return Err(refused(format!("the server refused it: {why}"), wanted));
        }
        let not_served = frevo_admin::Reloading::state(&*self.configuration).not_served;
        let mut of_share = not_served.into_iter().filter(|one| one.share == wanted.name());
        Ok(of_share.next().map(|one| format!("the share is not served yet: {}", one.reason)))
    }

    /// The answer to a change of a file that this server may not write.
    fn unwritten(&self, kind: Kind, wanted: &SectionChange, why: String) -> NotManaged {
        let place = self.place();
        match commands::of_section(kind, wanted, &place, &format!("frevo reload{place}")) {
            Some(command) => {
                let key = "set [admin] write_configuration = true, or run the command";
                NotManaged::new(Reason::ReadOnly, format!("{why}; {key}")).instead(command)
            }
            None => NotManaged::new(Reason::ReadOnly, why),
        }
    }

    /// The answer to a change with a folder that this server may not reach, whatever it writes.
    fn out_of_reach(&self, kind: Kind, wanted: &SectionChange, path: &Path) -> NotManaged {
        let why = format!(
            "{} is in no folder that this server was confined to at its start; run the command, \
             which restarts it",
            path.display()
        );
        let restart = "systemctl restart frevo";
        let command = commands::of_section(kind, wanted, &self.place(), restart);
        let not = NotManaged::new(Reason::ReadOnly, why).about("path");
        NotManaged { command, ..not }
    }
}

/// The texts of a file before and after a change.
struct Texts<'a> {
    before: &'a str,
    after: &'a str,
}

impl Texts<'_> {
    /// Takes the change back, unless somebody has changed the file since.
    fn restore(&self, file: &Path) -> io::Result<()> {
        if std::fs::read_to_string(file)? != self.after {
            return Err(io::Error::other("another program has changed it meanwhile"));
        }
        replace(file, self.before)
    }
}

/// The folder that a change names.
fn new_folder(wanted: &SectionChange) -> Option<&Path> {
    wanted.keys()?.get("path")?.as_str().map(Path::new)
}

/// The file of the section that a change is about; the main one for a new section.
fn file_of(
    kind: Kind,
    wanted: &SectionChange,
    all: &[Section],
    main: &Path,
) -> Result<PathBuf, NotManaged> {
    let found = all.iter().find(|one| fold_name(&one.name) == fold_name(wanted.name()));
    match (wanted, found) {
        (SectionChange::Add { .. }, None) => Ok(main.to_owned()),
        (SectionChange::Add { .. }, Some(_)) => {
            let why = format!("there is a {} {} already", kind.name(), wanted.name());
            Err(NotManaged::new(Reason::Refused, why).about("name"))
        }
        (_, Some(section)) if section.is_networked => {
            let why = "the share was added over the network; change or remove it there";
            Err(NotManaged::new(Reason::Refused, why))
        }
        (_, Some(section)) => Ok(PathBuf::from(&section.file)),
        (_, None) => {
            let why = format!("there is no {} {}", kind.name(), wanted.name());
            Err(NotManaged::new(Reason::Absent, why).about("name"))
        }
    }
}

/// Makes the change in a document.
fn edit(document: &mut DocumentMut, kind: Kind, wanted: &SectionChange) -> Result<(), NotManaged> {
    let item = document.entry(kind.name()).or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    let all = item.as_array_of_tables_mut().ok_or_else(|| {
        let why = format!("the file has no [[{}]] of its own", kind.name());
        NotManaged::new(Reason::Refused, why)
    })?;
    match wanted {
        SectionChange::Remove { name } => all.retain(|table| !is_called(table, name)),
        SectionChange::Add { keys, .. } if keys.contains_key("name") => {
            let why = "the name is said once, beside the keys";
            return Err(NotManaged::new(Reason::Malformed, why).about("name"));
        }
        SectionChange::Add { name, keys } => {
            let mut table = Table::new();
            table.insert("name", toml_edit::value(name.as_str()));
            table.decor_mut().set_prefix("\n");
            put_all(&mut table, keys)?;
            all.push(table);
        }
        SectionChange::Set { name, keys } => {
            let table = all.iter_mut().find(|table| is_called(table, name));
            let table = table.ok_or_else(|| {
                NotManaged::new(Reason::Absent, format!("there is no {} {name}", kind.name()))
            })?;
            put_all(table, keys)?;
        }
    }
    Ok(())
}

fn put_all(
    table: &mut Table,
    keys: &serde_json::Map<String, serde_json::Value>,
) -> Result<(), NotManaged> {
    for (key, value) in keys {
        let malformed = |why| NotManaged::new(Reason::Malformed, why).about(key.clone());
        values::put(table, key, value).map_err(malformed)?;
    }
    Ok(())
}

/// Looks over the configuration with a change. Faults that it would have had without are no reason against
/// it. Returns the new warnings.
fn review(
    config: &Config,
    sources: &Sources,
    file: &Path,
    after: &str,
    wanted: &SectionChange,
) -> Result<Vec<String>, NotManaged> {
    let changed = sources.with(&file.display().to_string(), after);
    let mut new = changed.config().map_err(|failure| refused(failure.message, wanted))?;
    // The command line may name the state directory.
    new.server.state_dir.clone_from(&config.server.state_dir);
    let known: Vec<String> =
        config_review::of_running(config, sources).into_iter().map(|one| one.text).collect();
    let is_new = |finding: &Finding| !known.contains(&finding.text);
    let findings = config_review::of_running(&new, &changed).into_iter().filter(is_new);
    let (faults, warnings): (Vec<_>, Vec<_>) = findings.partition(|finding| finding.is_fault);
    if let Some(fault) = faults.into_iter().next() {
        return Err(refused(fault.text, wanted));
    }
    Ok(warnings.into_iter().map(|finding| finding.text).collect())
}

/// A refusal, about the key that its sentence names.
fn refused(why: String, wanted: &SectionChange) -> NotManaged {
    let words: Vec<&str> =
        why.split(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_').collect();
    let named = |key: &&String| words.contains(&key.as_str());
    let key = wanted.keys().and_then(|keys| keys.keys().find(named)).cloned();
    let folder = new_folder(wanted).and_then(Path::to_str).filter(|path| why.contains(path));
    let key = key.or_else(|| folder.map(|_| String::from("path")));
    let not = NotManaged::new(Reason::Refused, why);
    match key {
        Some(key) => not.about(key),
        None => not,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const TEXT: &str = "# the office\n[server]\nname = \"BOX\" # old\n\n# for all\n[[share]]\nname = \"data\"\n\
                        path = \"/srv\" # disk 2\nallow = [\"ann\"] # boss\n\n[[rate]]\nname = \"slow\"\nread = \"1M\"\n";

    fn edited(kind: Kind, change: Value) -> Result<String, (Reason, Option<String>)> {
        let mut document: DocumentMut = TEXT.parse().unwrap();
        let change = serde_json::from_value(change).unwrap();
        match edit(&mut document, kind, &change) {
            Ok(()) => Ok(document.to_string()),
            Err(not) => Err((not.reason, not.field)),
        }
    }

    #[test]
    fn comments_of_the_file_stay() {
        let keys = json!({ "path": "/srv", "allow": ["ann", "bob"], "read_only": true });
        let set =
            edited(Kind::Share, json!({ "act": "set", "name": "DATA", "keys": keys })).unwrap();
        for comment in ["# the office", "# old", "# for all", "# disk 2", "# boss"] {
            assert!(set.contains(comment), "{set}");
        }
        let config = Config::parse(&set).unwrap();
        assert!(config.shares[0].read_only && config.shares[0].allow.len() == 2);
        let keys = json!({ "path": "/srv/b", "comment": null });
        let add = edited(Kind::Share, json!({ "act": "add", "name": "b", "keys": keys })).unwrap();
        assert!(
            add.contains("# disk 2") && Config::parse(&add).unwrap().shares.len() == 2,
            "{add}"
        );
        let rate =
            json!({ "act": "add", "name": "x", "keys": { "operations": 7, "each": "user" } });
        let rate = edited(Kind::Rate, rate).unwrap();
        assert_eq!(Config::parse(&rate).unwrap().rates[1].operations, Some(7));
        let gone = edited(Kind::Rate, json!({ "act": "remove", "name": "slow" })).unwrap();
        assert!(Config::parse(&gone).unwrap().rates.is_empty() && gone.contains("# boss"));
    }

    #[test]
    fn a_refusal_names_the_field() {
        let keys = json!({ "read_only": { "a": 1 } });
        let bad = edited(Kind::Share, json!({ "act": "set", "name": "data", "keys": keys }));
        assert_eq!(bad, Err((Reason::Malformed, Some(String::from("read_only")))));
        let absent = edited(Kind::Share, json!({ "act": "set", "name": "x", "keys": {} }));
        assert_eq!(absent.unwrap_err().0, Reason::Absent);
        let wanted = serde_json::from_value(
            json!({ "act": "set", "name": "data", "keys": { "allow": ["x"], "path": "/x" } }),
        );
        let not =
            refused(String::from("share data: allow has x, and there is none"), &wanted.unwrap());
        assert_eq!(not.field.as_deref(), Some("allow"));
    }
}
