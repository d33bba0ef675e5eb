//! The texts that a configuration is read from: the file, the files of `conf.d` beside it,
//! variables of the environment, and the shares and namespaces that were made over the network.

use std::ffi::OsString;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use frevo_config::{Config, Fault, without_links};

use crate::exit::{Exit, Failure};
use crate::network_namespaces::NetworkNamespaces;
use crate::network_shares::NetworkShares;
use crate::trusted_file;

/// Bytes that are read of a file: one more than the longest, which is then refused.
const CONFIG_BYTES_MAX: u64 = frevo_config::limits::CONFIG_FILE_BYTES as u64 + 1;
/// Files of `conf.d` that are read.
const FILES_MAX: usize = 1_000;
/// Sections that variables can set keys of.
const SECTIONS: [&str; 8] =
    ["server", "limits", "audit", "admin", "kerberos", "rpc", "quic", "traces"];

/// One text, and what it is called in messages.
#[derive(Debug, Clone)]
struct Source {
    name: String,
    text: String,
    /// False for a variable, which has one line.
    has_lines: bool,
}

/// All texts of a configuration; later ones count more.
#[derive(Debug)]
pub(crate) struct Sources(Vec<Source>);

/// The folder of further files beside a configuration file.
pub(crate) fn further_files(config: &Path) -> PathBuf {
    config.with_file_name("conf.d")
}

impl Sources {
    /// Reads all texts of the configuration at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        Self::read_files(path)?.with_network_namespaces(|_| true)
    }

    /// Reads the texts that do not come from namespaces made over the network.
    fn read_files(path: &Path) -> Result<Self, Failure> {
        let mut sources = vec![read_file(path)?];
        let folder = further_files(path);
        let mut files: Vec<PathBuf> = match fs::read_dir(&folder) {
            Ok(entries) => entries
                .filter_map(|entry| entry.ok().map(|entry| entry.path()))
                .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
                .take(FILES_MAX + 1)
                .collect(),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Vec::new(),
            Err(error) => {
                let text = format!("cannot read the folder {}: {error}", folder.display());
                return Err(Failure::new(Exit::Config, text));
            }
        };
        if files.len() > FILES_MAX {
            // With more than FILES_MAX files, chance would decide which of them are read, so none
            // is read.
            let text = format!(
                "{} has more than {FILES_MAX} files; join or remove some of them",
                folder.display()
            );
            return Err(Failure::new(Exit::Config, text));
        }
        files.sort();
        for file in files {
            sources.push(read_file(&file)?);
        }
        sources.extend(variables());
        Self(sources).with_network_shares()
    }

    /// The texts of a server with this configuration file, or without one.
    pub(crate) fn of(config: Option<&Path>) -> Result<Self, Failure> {
        config.map_or_else(Self::of_environment, Self::read)
    }

    /// The texts of a server without a configuration file: the variables of the environment.
    pub(crate) fn of_environment() -> Result<Self, Failure> {
        Self(variables().collect()).with_network_shares()?.with_network_namespaces(|_| true)
    }

    /// Like [`Self::of`]. The namespaces that a cluster keeps, which may be long, are an empty text.
    pub(crate) fn without_kept(config: Option<&Path>) -> Result<Self, Failure> {
        let environment = || Self(variables().collect()).with_network_shares();
        let files = config.map_or_else(environment, Self::read_files)?;
        files.with_network_namespaces(|namespaces| !namespaces.is_of_cluster())
    }

    /// Adds the shares that were added over the network.
    fn with_network_shares(self) -> Result<Self, Failure> {
        let mut sources = self;
        let table = sources.table_without_links();
        if let Some(shares) = NetworkShares::of_table(&table)
            && let Some(text) = shares.text(&share_names(&table))?
        {
            let name = shares.file.display().to_string();
            sources.0.push(Source { name, text, has_lines: true });
        }
        Ok(sources)
    }

    /// Adds the namespaces that were made over the network, of the files that are read; an empty text where there
    /// can be some.
    fn with_network_namespaces(
        self,
        is_read: impl Fn(&NetworkNamespaces) -> bool,
    ) -> Result<Self, Failure> {
        let mut sources = self;
        let table = sources.table_without_links();
        for namespaces in NetworkNamespaces::of_table(&table) {
            let is_read = is_read(&namespaces);
            let text = if is_read { namespaces.text(&table)? } else { String::new() };
            let name = namespaces.file.display().to_string();
            sources.0.push(Source { name, text, has_lines: true });
        }
        Ok(sources)
    }

    fn texts(&self) -> Vec<&str> {
        self.0.iter().map(|source| source.text.as_str()).collect()
    }

    /// The text of a file, by its name in messages.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|source| source.name == name).map(|source| source.text.as_str())
    }

    /// The sources with another text of one file.
    pub(crate) fn with(&self, name: &str, text: &str) -> Self {
        let mut all = self.0.clone();
        for source in all.iter_mut().filter(|source| source.name == name) {
            text.clone_into(&mut source.text);
        }
        Self(all)
    }

    /// Returns the configuration that the texts make together.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let mut config = Config::parse_all(&self.texts()).map_err(|faults| {
            let lines: Vec<String> = faults.iter().map(|fault| self.shown(fault)).collect();
            Failure::new(Exit::Config, lines.join("\nfrevo: "))
        })?;
        let table = self.table_without_links();
        for network in NetworkNamespaces::of_table(&table) {
            let file = network.file.display().to_string();
            for namespace in &mut config.namespaces {
                namespace.is_networked |= self.place(&namespace.name.span()).0 == file;
            }
        }
        if let Some(network) = NetworkShares::of_table(&table) {
            let file = network.file.display().to_string();
            for share in &mut config.shares {
                if self.place(&share.name.span()).0 == file {
                    share.beneath = Some(network.root_of(share.path.get_ref()));
                }
            }
        }
        Ok(config)
    }

    /// The configuration without keys that have faults, and the faults.
    pub(crate) fn lenient(&self) -> (Option<Config>, Vec<Fault>) {
        Config::parse_lenient(&self.texts())
    }

    /// The name of a fault's text, and its line there.
    pub(crate) fn place_of(&self, fault: &Fault) -> (String, Option<usize>) {
        let source = self.0.get(fault.part);
        let name = source.map(|source| source.name.clone()).unwrap_or_default();
        (name, fault.line.filter(|_| source.is_some_and(|source| source.has_lines)))
    }

    /// A fault with its place.
    fn shown(&self, fault: &Fault) -> String {
        let text = text_of(fault);
        match self.place_of(fault) {
            (name, Some(line)) => format!("{name}:{line}: {text}"),
            (name, None) => format!("{name}: {text}"),
        }
    }

    /// The name of the text of a span, and the line there.
    pub(crate) fn place(&self, span: &Range<usize>) -> (String, Option<usize>) {
        let mut start = 0;
        for source in &self.0 {
            let len = source.text.len() + usize::from(!source.text.ends_with('\n'));
            if span.start < start + len {
                let before = source.text.bytes().take(span.start - start);
                let line = before.filter(|byte| *byte == b'\n').count() + 1;
                return (source.name.clone(), source.has_lines.then_some(line));
            }
            start += len;
        }
        (String::new(), None)
    }

    /// The place of a key in the `[[share]]` that has `span`; that of the span when the section
    /// does not have the key.
    pub(crate) fn place_of_key(&self, span: &Range<usize>, key: &str) -> (String, Option<usize>) {
        let whole: String = self.texts().iter().fold(String::new(), |whole, text| {
            let end = if text.ends_with('\n') { "" } else { "\n" };
            whole + text + end
        });
        let (before, after) = whole.split_at_checked(span.start).unwrap_or((&whole, ""));
        let start = before.rfind("\n[").map_or(0, |at| at + 1);
        let end = after.find("\n[").map_or(whole.len(), |at| span.start + at);
        let section = whole.get(start..end).unwrap_or_default();
        let mut at = start;
        for line in section.split_inclusive('\n') {
            if line.split('=').next().is_some_and(|word| word.trim() == key) {
                return self.place(&(at..at));
            }
            at += line.len();
        }
        self.place(span)
    }

    /// The tables of all texts, put together.
    pub(crate) fn table(&self) -> toml::Table {
        joined(self.0.iter().filter_map(|source| source.text.parse().ok()))
    }

    /// The tables of all texts, put together, without the links of namespaces in long ones.
    pub(crate) fn table_without_links(&self) -> toml::Table {
        joined(self.0.iter().filter_map(|source| without_links(&source.text).parse().ok()))
    }
}

/// The names of the shares of a configuration.
fn share_names(table: &toml::Table) -> Vec<String> {
    let shares = table.get("share").and_then(toml::Value::as_array).into_iter().flatten();
    shares.filter_map(|share| Some(share.get("name")?.as_str()?.to_owned())).collect()
}

fn joined(tables: impl Iterator<Item = toml::Table>) -> toml::Table {
    let mut whole = toml::Table::new();
    tables.for_each(|table| add(&mut whole, table));
    whole
}

/// Adds a table to another one: keys of sections replace, lists of sections go on.
fn add(whole: &mut toml::Table, more: toml::Table) {
    for (key, value) in more {
        match (whole.get_mut(&key), value) {
            (Some(toml::Value::Table(there)), toml::Value::Table(more)) => there.extend(more),
            (Some(toml::Value::Array(there)), toml::Value::Array(more)) => there.extend(more),
            (_, value) => drop(whole.insert(key, value)),
        }
    }
}

/// A fault without its line.
pub(crate) fn text_of(fault: &Fault) -> String {
    Fault { line: None, ..fault.clone() }.to_string()
}

fn read_file(path: &Path) -> Result<Source, Failure> {
    let shown = path.display();
    let text = trusted_file::read(path, CONFIG_BYTES_MAX).map_err(|refusal| match refusal {
        trusted_file::Refusal::OthersWrite(why) => {
            Failure::new(Exit::Config, format!("the configuration was not read: {why}"))
        }
        trusted_file::Refusal::Unreadable(error) => {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            let exit = if missing { Exit::NotFound } else { Exit::Config };
            Failure::new(exit, format!("cannot read the configuration {shown}: {error}"))
        }
    })?;
    Ok(Source { name: shown.to_string(), text, has_lines: true })
}

/// The texts of all variables.
fn variables() -> impl Iterator<Item = Source> {
    std::env::vars_os().filter_map(|(name, value)| variable(name, value))
}

/// The text of a variable such as FREVO_SERVER_LOG_LEVEL. None for other variables.
fn variable(name: OsString, value: OsString) -> Option<Source> {
    let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
    let rest = name.strip_prefix("FREVO_")?.to_ascii_lowercase();
    let (section, key) = rest.split_once('_').filter(|(section, _)| SECTIONS.contains(section))?;
    // A value that is not valid TOML is taken as a text without quotation marks.
    let is_toml = !value.contains('\n') && format!("a = {value}").parse::<toml::Table>().is_ok();
    let value = if is_toml { value } else { toml::Value::String(value).to_string() };
    Some(Source { name, text: format!("[{section}]\n{key} = {value}\n"), has_lines: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_files_are_all_read_or_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frevo.toml");
        fs::write(&path, "").unwrap();
        fs::create_dir(folder.path().join("conf.d")).unwrap();
        let file = |at: usize| folder.path().join(format!("conf.d/{at}.toml"));
        for at in 0..FILES_MAX {
            fs::write(file(at), "").unwrap();
        }
        assert!(Sources::read(&path).unwrap().0.len() > FILES_MAX);
        fs::write(file(FILES_MAX), "").unwrap();
        let refused = Sources::read(&path).unwrap_err().to_string();
        assert!(refused.contains("more than 1000 files"), "{refused}");
    }

    #[test]
    fn variables_set_keys() {
        let text =
            |name: &str, value: &str| variable(name.into(), value.into()).map(|source| source.text);
        for (name, value, toml) in [
            ("FREVO_SERVER_LOG_LEVEL", "debug", "[server]\nlog_level = \"debug\"\n"),
            ("FREVO_SERVER_CORES", "2", "[server]\ncores = 2\n"),
            ("FREVO_SERVER_LISTEN", "[\"eth0\"]", "[server]\nlisten = [\"eth0\"]\n"),
            ("FREVO_LIMITS_MEMORY", "1G", "[limits]\nmemory = \"1G\"\n"),
            ("FREVO_AUDIT_SYSLOG", "true", "[audit]\nsyslog = true\n"),
        ] {
            assert_eq!(text(name, value).as_deref(), Some(toml));
        }
        for other in ["FREVO_PASSWORD", "FREVO_USER", "SERVER_NAME", "FREVO_SERVER"] {
            assert_eq!(text(other, "x"), None, "{other}");
        }
        // The line end in the value must not add a second key to the configuration.
        let two = text("FREVO_SERVER_NAME", "\"a\"\ncores = 1").unwrap();
        assert!(two.parse::<toml::Table>().unwrap()["server"].get("cores").is_none(), "{two}");
    }

    #[test]
    fn files_of_conf_d_are_read_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let main = dir.path().join("frevo.toml");
        fs::write(&main, "[server]\nname = \"A\"\n").unwrap();
        fs::create_dir(dir.path().join("conf.d")).unwrap();
        let share = |name: &str| format!("[[share]]\nname = \"{name}\"\npath = \"/{name}\"\n");
        for (file, text) in [
            ("20-b.toml", share("b") + "[server]\nname = \"B\"\n"),
            ("10-a.toml", share("a")),
            ("30-old.toml.bak", share("c")),
        ] {
            fs::write(dir.path().join("conf.d").join(file), text).unwrap();
        }
        let sources = Sources::read(&main).unwrap();
        let config = sources.config().unwrap();
        let names: Vec<&str> = config.shares.iter().map(|s| s.name.get_ref().as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!(config.server.name.as_ref().unwrap().as_str(), "B");
        let place = sources.place(&config.shares[1].path.span());
        assert!(place.0.ends_with("20-b.toml") && place.1 == Some(3), "{place:?}");
        let place = sources.place_of_key(&config.shares[0].path.span(), "name");
        assert!(place.0.ends_with("10-a.toml") && place.1 == Some(2), "{place:?}");
        fs::write(dir.path().join("conf.d/40.toml"), "\n[server]\nnmae = 1\n").unwrap();
        let failure = Sources::read(&main).unwrap().config().unwrap_err().to_string();
        assert!(failure.contains("40.toml:3: unknown key `nmae`"), "{failure}");
    }
}
