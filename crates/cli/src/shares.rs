//! `frevo share`: lists and changes the shares of a configuration. Comments stay as they are.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use frevo_config::{Config, ConfinementChoice, ShareName, ShareSection, nearest};
use frevo_wire::fscc::fold_name;
use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, Value};

use crate::changes::{CHANGE_EXIT_CODES, Telling};
use crate::config_lock;
use crate::config_sources::Sources;
use crate::configured::folder;
use crate::console::print_text;
use crate::exit::{Done, EXIT_CODES, Exit, Failure, is_json};
use crate::namespace_tables::is_called;
use crate::network_shares::NetworkShares;
use crate::state::DEFAULT_CONFIG;

/// `frevo share`
#[derive(Debug, Args)]
pub(crate) struct Shares {
    /// Configuration file of the server
    #[arg(long, short, value_name = "FILE", global = true, default_value = DEFAULT_CONFIG, value_hint = ValueHint::FilePath)]
    config: PathBuf,

    #[command(subcommand)]
    command: Change,
}

#[derive(Debug, Subcommand)]
enum Change {
    /// List the shares
    #[command(after_help = EXIT_CODES)]
    List {
        /// Print one JSON object per share
        #[arg(long)]
        json: bool,
    },
    /// Add a share
    #[command(after_help = CHANGE_EXIT_CODES)]
    Add {
        /// Name of the share
        name: ShareName,
        /// The folder
        #[arg(value_hint = ValueHint::DirPath)]
        path: PathBuf,
        /// Keys of the share, such as read_only=true or allow=ann,@staff
        #[arg(value_name = "KEY=VALUE")]
        keys: Vec<String>,
        /// Change a share that is there already: its folder and the keys that are named
        #[arg(long)]
        ensure: bool,
        #[command(flatten)]
        telling: Telling,
    },
    /// Change keys of a share
    #[command(after_help = CHANGE_EXIT_CODES)]
    Set {
        /// Name of the share
        name: String,
        /// Keys with their values; a key without a value (KEY=) is removed
        #[arg(value_name = "KEY=VALUE", required = true)]
        keys: Vec<String>,
        #[command(flatten)]
        telling: Telling,
    },
    /// Remove a share; its folder stays
    #[command(after_help = CHANGE_EXIT_CODES)]
    Rm {
        /// Name of the share
        name: String,
        /// Do nothing if there is no such share
        #[arg(long)]
        ensure: bool,
        #[command(flatten)]
        telling: Telling,
    },
}

impl Shares {
    /// Returns the configuration.
    pub(crate) fn config(&self) -> &Path {
        &self.config
    }
}

pub(crate) fn run(shares: &Shares) -> Done {
    let config = &shares.config;
    match &shares.command {
        Change::List { .. } => list(config),
        Change::Add { name, path, keys, ensure: true, telling } => {
            ensure(config, name, path, keys, *telling)
        }
        Change::Add { name, path, keys, ensure: false, telling } => {
            add(config, name, path, keys, *telling)
        }
        Change::Set { name, keys, telling } => set(config, name, keys, *telling),
        Change::Rm { name, ensure, telling } => remove(config, name, *ensure, *telling),
    }
}

/// The way by which a change is applied.
#[derive(Debug, Clone, Copy)]
enum Applied {
    ByReload,
    ByRestart,
}

impl Applied {
    const fn advice(self) -> &'static str {
        match self {
            Self::ByReload => "systemctl reload frevo applies the change",
            Self::ByRestart => {
                "systemctl restart frevo applies the change: a server that runs is confined to the \
                 folders of its shares at the start and those of confine_to, and the new folder is not in \
                 them"
            }
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::ByReload => "reload",
            Self::ByRestart => "restart",
        }
    }

    /// The way by which a server with this configuration serves a folder.
    fn of_folder(config: &Config, path: &Path) -> Self {
        if may_be_added(config, path) { Self::ByReload } else { Self::ByRestart }
    }
}

/// True if a server with this configuration may add a share of a folder while it runs.
pub(crate) fn may_be_added(config: &Config, path: &Path) -> bool {
    let server = &config.server;
    let folders = config.shares.iter().map(|share| share.path.get_ref().as_path());
    let is_within = folders
        .chain(server.confine_to.iter().map(PathBuf::as_path))
        .any(|of| path.starts_with(of));
    is_within || server.confinement == Some(ConfinementChoice::Off)
}

fn list(config: &Path) -> Done {
    let sources = Sources::read(config)?;
    let mut out = String::new();
    for share in &sources.config()?.shares {
        let (name, path) = (share.name.get_ref(), share.path.get_ref().display().to_string());
        if is_json() {
            let (file, line) = sources.place(&share.name.span());
            let object = serde_json::json!({
                "name": name.as_str(), "path": path, "comment": share.comment,
                "read_only": share.read_only, "hidden": share.hidden, "file": file, "line": line,
            });
            out.push_str(&format!("{object}\n"));
        } else {
            let kind = if share.read_only { " (read-only)" } else { "" };
            out.push_str(&format!("{name}  {path}{kind}\n"));
        }
    }
    print_text(&out)
}

/// The file and the section of a share.
fn find(config: &Path, name: &str) -> Result<(Sources, PathBuf, ShareSection), Failure> {
    let sources = Sources::read(config)?;
    let all = sources.config()?.shares;
    let is_wanted =
        |share: &&ShareSection| fold_name(share.name.get_ref().as_str()) == fold_name(name);
    let Some(share) = all.iter().find(is_wanted) else {
        let near = nearest(name, all.iter().map(|share| share.name.get_ref().as_str()));
        let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
        let text = format!("{} has no share {name}{near}", config.display());
        return Err(Failure::new(Exit::NotFound, text));
    };
    let file = PathBuf::from(sources.place(&share.name.span()).0);
    let share = share.clone();
    Ok((sources, file, share))
}

/// A file that is changed.
pub(crate) struct Edited {
    file: PathBuf,
    /// The text of the document before all changes.
    before: String,
    pub(crate) document: DocumentMut,
}

impl Edited {
    pub(crate) fn open(sources: &Sources, file: PathBuf) -> Result<Self, Failure> {
        let shown = file.display().to_string();
        let text = sources.text(&shown).unwrap_or_default();
        let document = text.parse::<DocumentMut>().map_err(|error| {
            Failure::new(Exit::Config, format!("{shown} is not TOML: {}", error.message()))
        })?;
        Ok(Self { file, before: document.to_string(), document })
    }

    fn shares(&mut self) -> Result<&mut ArrayOfTables, Failure> {
        let item =
            self.document.entry("share").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
        item.as_array_of_tables_mut().ok_or_else(|| {
            let text = format!("{}: write each share as [[share]]", self.file.display());
            Failure::new(Exit::Config, text)
        })
    }

    /// The section of the share of this name.
    fn share(&mut self, name: &str) -> Result<&mut Table, Failure> {
        let shown = self.file.display().to_string();
        let found = self.shares()?.iter_mut().find(|table| is_called(table, name));
        found.ok_or_else(|| Failure::new(Exit::NotFound, format!("{shown} has no share {name}")))
    }

    /// The failure of a change that would leave a fault in the file.
    fn unchanged(&self, failure: &Failure) -> Failure {
        let file = self.file.display();
        let text =
            format!("{file} was not changed; with the change it would have a fault: {failure}");
        Failure::new(failure.exit, text)
    }

    /// Checks the changed configuration, replaces the file if it changes, and tells so.
    pub(crate) fn save(self, sources: &Sources, telling: Telling) -> Done {
        self.save_for(sources, Applied::ByReload, telling)
    }

    /// Saves as [`Self::save`], and tells how the change is applied.
    fn save_for(self, sources: &Sources, applied: Applied, telling: Telling) -> Done {
        let shown = self.file.display().to_string();
        if self.document.to_string() == self.before {
            let facts = serde_json::json!({ "file": shown, "apply": null });
            return telling.finish(false, facts, &format!("{shown} stays as it is"));
        }
        let done = match telling.is_dry_run() {
            true => {
                self.checked(sources)?;
                "would be"
            }
            false => {
                self.store(sources)?;
                "was"
            }
        };
        let line = format!("{shown} {done} changed; {}", applied.advice());
        let facts = serde_json::json!({ "file": shown, "apply": applied.word() });
        telling.finish(true, facts, &line)
    }

    /// Returns the changed text, if it has no fault.
    fn checked(&self, sources: &Sources) -> Result<String, Failure> {
        let text = self.document.to_string();
        let checked = sources.with(&self.file.display().to_string(), &text).config();
        checked.map_err(|failure| self.unchanged(&failure))?;
        Ok(text)
    }

    /// Checks the changed configuration, and replaces the file. Returns its path.
    pub(crate) fn store(self, sources: &Sources) -> Result<PathBuf, Failure> {
        let mut text = self.checked(sources)?;
        let _lock = lock(sources, &self.file)?.ok_or_else(|| {
            let shown = self.file.display();
            let text = format!("{shown} was changed by another program meanwhile; try again");
            Failure::new(Exit::Failed, text)
        })?;
        let network = NetworkShares::of_table(&sources.table_without_links());
        if let Some(network) = network.filter(|network| network.file == self.file) {
            text = network.with_hidden(&self.before, &text)?;
        }
        replace(&self.file, &text).map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot write {}: {error}", self.file.display()))
        })?;
        Ok(self.file)
    }
}

/// Locks a file, which must still be as it was read. None if it is not. The file of the shares that were added
/// over the network is read in part, so that its texts may differ.
pub(crate) fn lock(sources: &Sources, file: &Path) -> Result<Option<File>, Failure> {
    let network = NetworkShares::of_table(&sources.table_without_links());
    if network.is_some_and(|network| network.file == file) {
        return config_lock::take(file).map(Some);
    }
    let before = sources.text(&file.display().to_string()).unwrap_or_default();
    config_lock::take_unchanged(file, before)
}

/// Returns the absolute path of a folder that can be shared.
fn usable_folder(name: &ShareName, path: &Path) -> Result<String, Failure> {
    let path = std::path::absolute(path)
        .map_err(Failure::failed(format!("cannot share {}", path.display())))?;
    let Some(shown) = path.to_str() else {
        let text = format!("the name of the folder {} is not valid UTF-8", path.display());
        return Err(Failure::new(Exit::Usage, text));
    };
    let shown = shown.to_owned();
    if let Err(fault) = folder::open(&ShareSection::new(name.clone(), path)) {
        let exit = if fault.is_missing() { Exit::NotFound } else { Exit::Failed };
        return Err(Failure::new(exit, fault.to_string()));
    }
    Ok(shown)
}

/// Adds a share, or gives one that is there already this folder and these keys. Its other keys stay.
fn ensure(config: &Path, name: &ShareName, path: &Path, keys: &[String], telling: Telling) -> Done {
    let (sources, file, _) = match find(config, name.as_str()) {
        Err(failure) if failure.exit == Exit::NotFound => {
            return add(config, name, path, keys, telling);
        }
        found => found?,
    };
    let path = usable_folder(name, path)?;
    let applied = Applied::of_folder(&sources.config()?, Path::new(&path));
    let mut edited = Edited::open(&sources, file)?;
    set_key(edited.share(name.as_str())?, "path", Value::from(path));
    change(&mut edited, &sources, name.as_str(), keys)?;
    edited.save_for(&sources, applied, telling)
}

fn add(config: &Path, name: &ShareName, path: &Path, keys: &[String], telling: Telling) -> Done {
    let sources = Sources::read(config)?;
    let shown = usable_folder(name, path)?;
    let applied = Applied::of_folder(&sources.config()?, Path::new(&shown));
    let mut edited = Edited::open(&sources, config.to_owned())?;
    let mut table = Table::new();
    table.insert("name", toml_edit::value(name.as_str()));
    table.insert("path", toml_edit::value(shown));
    table.decor_mut().set_prefix("\n");
    edited.shares()?.push(table);
    change(&mut edited, &sources, name.as_str(), keys)?;
    edited.save_for(&sources, applied, telling)
}

fn set(config: &Path, name: &str, keys: &[String], telling: Telling) -> Done {
    let (sources, file, _) = find(config, name)?;
    let mut edited = Edited::open(&sources, file)?;
    change(&mut edited, &sources, name, keys)?;
    edited.save(&sources, telling)
}

/// A key of the command line with its value; an empty one removes the key.
struct Setting<'a> {
    key: &'a str,
    value: &'a str,
}

impl<'a> Setting<'a> {
    fn parse(said: &'a str) -> Result<Self, Failure> {
        let Some((key, value)) = said.split_once('=') else {
            return Err(Failure::new(Exit::Usage, format!("{said} is not KEY=VALUE")));
        };
        Ok(Self { key: key.trim(), value })
    }

    /// Sets the key of a share to the first reading of the value with which the configuration has no
    /// fault. Without one the document stays as it is.
    fn apply(&self, edited: &mut Edited, sources: &Sources, name: &mut String) -> Done {
        let Self { key, value } = *self;
        if value.is_empty() {
            edited.share(name)?.remove(key);
            return Ok(());
        }
        let before = edited.document.clone();
        let mut first = None;
        for reading in readings(value) {
            set_key(edited.share(name)?, key, reading);
            let text = edited.document.to_string();
            match sources.with(&edited.file.display().to_string(), &text).config() {
                Ok(_) => {
                    if key == "name" {
                        value.trim_matches('"').clone_into(name);
                    }
                    return Ok(());
                }
                Err(failure) => drop(first.get_or_insert(failure)),
            }
            edited.document = before.clone();
        }
        first.map_or(Ok(()), |failure| Err(edited.unchanged(&failure)))
    }
}

/// Sets or removes keys of a share. A key may need another one that is named after it.
fn change(edited: &mut Edited, sources: &Sources, name: &str, keys: &[String]) -> Done {
    let mut name = name.to_owned();
    let mut left = keys.iter().map(|said| Setting::parse(said)).collect::<Result<Vec<_>, _>>()?;
    while !left.is_empty() {
        let (count, mut first, mut refused) = (left.len(), None, Vec::new());
        for setting in left {
            if let Err(failure) = setting.apply(edited, sources, &mut name) {
                first = first.or(Some(failure));
                refused.push(setting);
            }
        }
        match first {
            Some(failure) if refused.len() == count => return Err(failure),
            _ => left = refused,
        }
    }
    Ok(())
}

/// The meanings that a value on the command line can have: TOML, a text, a list of texts.
fn readings(value: &str) -> Vec<Value> {
    let texts: toml_edit::Array = value.split(',').map(str::trim).collect();
    let mut readings: Vec<Value> = value.parse::<Value>().into_iter().collect();
    readings.extend([Value::from(value), Value::Array(texts)]);
    readings
}

/// Sets a key; the comments above it and behind its value stay, and so does a value that is only written in
/// another way.
pub(crate) fn set_key(table: &mut Table, key: &str, mut value: Value) {
    // `Table::insert` would drop the comments above a key that is there.
    let Some(item) = table.get_mut(key) else {
        table.insert(key, Item::Value(value));
        return;
    };
    if let Some(old) = item.as_value() {
        if is_same(old, &value) {
            return;
        }
        *value.decor_mut() = old.decor().clone();
    }
    *item = Item::Value(value);
}

/// True for values that mean the same.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::String(one), Value::String(other)) => one.value() == other.value(),
        (Value::Integer(one), Value::Integer(other)) => one.value() == other.value(),
        (Value::Boolean(one), Value::Boolean(other)) => one.value() == other.value(),
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len()
                && one.iter().zip(other).all(|(one, other)| is_same(one, other))
        }
        (Value::InlineTable(one), Value::InlineTable(other)) => {
            let is_there =
                |(key, value): (&str, &Value)| other.get(key).is_some_and(|it| is_same(value, it));
            one.len() == other.len() && one.iter().all(is_there)
        }
        _ => false,
    }
}

fn remove(config: &Path, name: &str, is_ensured: bool, telling: Telling) -> Done {
    let (sources, file, _) = match find(config, name) {
        Err(failure) if is_ensured && failure.exit == Exit::NotFound && config.exists() => {
            let facts = serde_json::json!({ "file": null, "apply": null });
            return telling.finish(false, facts, &failure.message);
        }
        found => found?,
    };
    let mut edited = Edited::open(&sources, file)?;
    edited.share(name)?;
    edited.shares()?.retain(|table| !is_called(table, name));
    edited.save(&sources, telling)
}

/// Replaces a file by another one with its owner and mode, in one step.
pub(crate) fn replace(file: &Path, text: &str) -> io::Result<()> {
    // A symbolic link is resolved first, so that the rename replaces its target and not the link.
    let file = fs::canonicalize(file)?;
    let old = fs::metadata(&file)?;
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.new", std::process::id()));
    let new = file.with_file_name(name);
    let write = || {
        let mut options = OpenOptions::new();
        let mut made = options.write(true).create_new(true).mode(0o600).open(&new)?;
        made.write_all(text.as_bytes())?;
        std::os::unix::fs::fchown(&made, Some(old.uid()), Some(old.gid()))?;
        made.set_permissions(fs::Permissions::from_mode(old.mode() & 0o7777))?;
        made.sync_all()?;
        fs::rename(&new, &file)
    };
    write().inspect_err(|_| drop(fs::remove_file(&new)))
}
