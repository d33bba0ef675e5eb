//! The namespaces of a cluster as etcd keeps them: an entry for each root and each link, whose value is its section
//! in TOML. All values together, in the order of their keys, are the text of a configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use frevo_cluster::limits::NAMESPACE_ENTRY_BYTES;
use frevo_config::Config;
use frevo_config::limits::{NETWORK_LINKS, NETWORK_NAMESPACES_BYTES};
use frevo_dfs::limits::NAMESPACES;
use frevo_server::NamespaceChange;
use frevo_wire::fscc::fold_name;
use sha2::{Digest, Sha256};
use toml_edit::{ArrayOfTables, Decor, DocumentMut, Item, Table};

/// Hexadecimal digits of an entry's key for the name of a namespace, and for the path of a link.
const DIGITS: usize = 32;
/// The entries that are read at most.
pub(crate) const ENTRIES_MAX: usize = NETWORK_LINKS + NAMESPACES;
/// Changed entries that are checked with those that they overlap with. More are checked with all.
const CHECKED_ALONE: usize = 64;

/// The roots and the links, by the ends of their keys: `<namespace>/` and `<namespace>/<link>`. Clones share them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entries(Arc<BTreeMap<String, Entry>>);

/// A root or a link.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Entry {
    /// Its section.
    text: String,
    /// The path of a link, folded, without backslashes at its ends. Empty for a root.
    path: Box<str>,
}

/// A change of one entry.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EntryChange<'a> {
    Put(&'a str, &'a str),
    Remove(&'a str),
}

/// A text of fixed length for a name: names of all lengths and characters make a key of etcd.
fn digest(name: &str) -> String {
    let mut digits = String::with_capacity(DIGITS);
    for byte in Sha256::digest(fold_name(name).as_bytes()).iter().take(DIGITS / 2) {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// True if the path `inner` of a link is below the folder `outer`; both are folded.
pub(crate) fn is_below(inner: &str, outer: &str) -> bool {
    inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('\\'))
}

/// True for paths of links that cannot be beside each other.
pub(crate) fn overlaps(one: &str, other: &str) -> bool {
    one == other || is_below(one, other) || is_below(other, one)
}

fn text_of<'a>(table: &'a Table, key: &str) -> &'a str {
    table.get(key).and_then(Item::as_str).unwrap_or_default()
}

fn root_key(root: &Table) -> String {
    format!("{}/", digest(text_of(root, "name")))
}

fn link_path(link: &Table) -> &str {
    text_of(link, "path").trim_matches('\\')
}

fn link_key(root: &str, link: &Table) -> String {
    format!("{root}{}", digest(link_path(link)))
}

/// The key of the root of an entry with this key.
fn root_of(key: &str) -> &str {
    key.split_inclusive('/').next().unwrap_or_default()
}

/// The text with one section, `[[namespace]]` or `[[namespace.link]]`, which has no comment before it.
fn section(mut table: Table, is_link: bool) -> String {
    *table.decor_mut() = Decor::new("", "");
    let mut tables = ArrayOfTables::new();
    tables.push(table);
    let mut item = Item::ArrayOfTables(tables);
    if is_link {
        let mut parent = Table::new();
        parent.set_implicit(true);
        parent.insert("link", item);
        item = Item::Table(parent);
    }
    let mut document = DocumentMut::new();
    document.insert("namespace", item);
    document.to_string()
}

impl Entry {
    fn of_root(table: Table) -> Self {
        Self { text: section(table, false), path: Box::default() }
    }

    fn of_link(link: Table) -> Self {
        let path = fold_name(link_path(&link)).into();
        Self { text: section(link, true), path }
    }
}

/// An entry with the key that it must have.
struct Section {
    key: String,
    entry: Entry,
}

/// The section in the text of an entry in the namespace with the key `root`, as a node writes it: headers of
/// others would not go together in one text. None for a text that is no single section.
fn section_of(text: &str, root: &str) -> Option<Section> {
    let document = text.parse::<DocumentMut>().ok()?;
    let namespace = document.get("namespace").filter(|_| document.len() == 1)?;
    let single = |tables: &ArrayOfTables| tables.get(0).filter(|_| tables.len() == 1).cloned();
    if let Some(tables) = namespace.as_array_of_tables() {
        let table = single(tables)?;
        let is_bare = !table.contains_key("link");
        return is_bare.then(|| Section { key: root_key(&table), entry: Entry::of_root(table) });
    }
    let parent = namespace.as_table()?;
    let links = parent.get("link").filter(|_| parent.len() == 1)?.as_array_of_tables()?;
    let link = single(links)?;
    Some(Section { key: link_key(root, &link), entry: Entry::of_link(link) })
}

impl Entries {
    /// The entries of a text of namespaces.
    ///
    /// # Errors
    /// A sentence, if the text is no list of namespaces, or an entry is too long.
    pub(crate) fn of_text(text: &str) -> Result<Self, String> {
        let document = text.parse::<DocumentMut>().map_err(|_| String::from("it is not TOML"))?;
        let mut entries = BTreeMap::new();
        let tables = match document.get("namespace") {
            None => return Ok(Self::default()),
            Some(item) => item.as_array_of_tables(),
        };
        let tables = tables.ok_or("a namespace is not written as [[namespace]]")?;
        for table in tables {
            let mut table = table.clone();
            let links = match table.remove("link") {
                None => ArrayOfTables::new(),
                Some(Item::ArrayOfTables(links)) => links,
                Some(_) => return Err("a link is not written as [[namespace.link]]".to_owned()),
            };
            let root = root_key(&table);
            for link in links {
                entries.insert(link_key(&root, &link), Entry::of_link(link));
            }
            entries.insert(root, Entry::of_root(table));
        }
        let mut texts = entries.values().map(|entry| &entry.text);
        if let Some(long) = texts.find(|text| text.len() > NAMESPACE_ENTRY_BYTES) {
            let start: String = long.chars().take(100).collect();
            return Err(format!("an entry has more than {NAMESPACE_ENTRY_BYTES} bytes: {start}"));
        }
        Ok(Self(Arc::new(entries)))
    }

    /// Takes what etcd has. Entries of `known` are not parsed once more. Returns the number of those that are left out: values that are no single section
    /// of the namespace or link of their key, and links without a root.
    ///
    /// # Errors
    /// A sentence, if there is more than any node makes.
    pub(crate) fn of_etcd(
        found: impl IntoIterator<Item = (String, Vec<u8>)>,
        known: &Self,
    ) -> Result<(Self, usize), String> {
        let (mut entries, mut left_out, mut bytes) = (BTreeMap::new(), 0, 0_usize);
        for (key, value) in found {
            bytes = bytes.saturating_add(value.len());
            too_much(entries.len() + left_out + 1, bytes).map_or(Ok(()), Err)?;
            let same = known.0.get(&key).filter(|entry| entry.text.as_bytes() == value);
            if let Some(entry) = same {
                entries.insert(key, entry.clone());
                continue;
            }
            let root = root_of(&key);
            let text = Some(value).filter(|value| value.len() <= NAMESPACE_ENTRY_BYTES);
            let text = text.and_then(|value| String::from_utf8(value).ok());
            let found = text.and_then(|text| section_of(&text, root));
            match found.filter(|found| found.key == key) {
                Some(found) => drop(entries.insert(key, found.entry)),
                None => left_out += 1,
            }
        }
        let all = entries.len();
        let roots: BTreeSet<String> =
            entries.keys().filter(|key| key.ends_with('/')).cloned().collect();
        entries.retain(|key: &String, _| roots.contains(root_of(key)));
        left_out += all - entries.len();
        Ok((Self(Arc::new(entries)), left_out))
    }

    /// Returns a sentence if these are more than a node takes.
    pub(crate) fn too_much(&self) -> Option<String> {
        too_much(self.0.len(), self.bytes())
    }

    /// The length of all of them.
    pub(crate) fn bytes(&self) -> usize {
        self.0.values().map(|entry| entry.text.len()).sum()
    }

    /// The number of namespaces.
    pub(crate) fn roots(&self) -> usize {
        self.0.keys().filter(|key| key.ends_with('/')).count()
    }

    /// The number of links.
    pub(crate) fn links(&self) -> usize {
        self.0.len() - self.roots()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if these are among them.
    pub(crate) fn has_all_of(&self, others: &Self) -> bool {
        others.0.iter().all(|(key, entry)| self.0.get(key) == Some(entry))
    }

    /// True if these have all that is new or other in `after` than in `before`.
    pub(crate) fn has_new_of(&self, before: &Self, after: &Self) -> bool {
        before.changes_to(after).iter().all(|change| match change {
            EntryChange::Put(key, text) => self.0.get(*key).is_some_and(|own| own.text == *text),
            EntryChange::Remove(_) => true,
        })
    }

    /// All of them as one text.
    pub(crate) fn text(&self) -> String {
        joined(self.0.values().map(|entry| &entry.text))
    }

    /// Those that a change is about: its namespace, and the links at, above and below its paths. Whether the
    /// change can be made depends on no others.
    pub(crate) fn touched_by(&self, change: &NamespaceChange) -> Self {
        let paths = match change {
            NamespaceChange::AddRoot { .. } | NamespaceChange::RemoveRoot { .. } => Vec::new(),
            NamespaceChange::AddLink { path, .. }
            | NamespaceChange::RemoveLink { path, .. }
            | NamespaceChange::Set { path, .. } => vec![fold_name(&path.link)],
            NamespaceChange::Move { from, to, .. } => {
                vec![fold_name(&from.link), fold_name(&to.link)]
            }
        };
        let root = format!("{}/", digest(change.namespace()));
        let is_part = |entry: &Entry| {
            entry.path.is_empty() || paths.iter().any(|path| overlaps(path, &entry.path))
        };
        let part = self.of_root(&root).filter(|(_, entry)| is_part(entry));
        Self(Arc::new(part.map(|(key, entry)| (key.clone(), entry.clone())).collect()))
    }

    /// These with the entries `after` in place of `before`, which are of them. The links of a root that goes go,
    /// too.
    pub(crate) fn with(&self, before: &Self, after: &Self) -> Self {
        let mut all = BTreeMap::clone(&self.0);
        let gone: Vec<&String> =
            before.0.keys().filter(|key| !after.0.contains_key(*key)).collect();
        for key in &gone {
            all.remove(*key);
        }
        if gone.iter().any(|key| key.ends_with('/')) {
            all.retain(|key, _| !gone.iter().any(|gone| *gone == root_of(key)));
        }
        all.extend(after.0.iter().map(|(key, entry)| (key.clone(), entry.clone())));
        Self(Arc::new(all))
    }

    /// The entries that are other than in `good`, with their roots and with the links that they overlap with:
    /// these have a fault if any has one and those of `good` have none. None if they are many.
    fn changed_since(&self, good: &Self) -> Option<Self> {
        let changes = good.changes_to(self);
        if changes.len() > CHECKED_ALONE {
            return None;
        }
        let mut part = BTreeMap::new();
        for change in changes {
            let EntryChange::Put(key, _) = change else { continue };
            let path = self.0.get(key).map(|entry| &*entry.path).unwrap_or_default();
            let is_part = |(one, entry): &(&String, &Entry)| {
                entry.path.is_empty()
                    || *one == key
                    || !path.is_empty() && overlaps(path, &entry.path)
            };
            let near = self.of_root(root_of(key)).filter(is_part);
            part.extend(near.map(|(key, entry)| (key.clone(), entry.clone())));
        }
        Some(Self(Arc::new(part)))
    }

    /// Like [`Self::checked_text`], if the entries of `good` have no faults.
    pub(crate) fn checked_text_since(&self, good: &Self) -> (String, Vec<String>) {
        match self.changed_since(good) {
            Some(part) if part.checked_text().1.is_empty() => (self.text(), Vec::new()),
            _ => self.checked_text(),
        }
    }

    /// The text of the namespaces of which `is_kept` is true for the section.
    pub(crate) fn text_of(&self, is_kept: impl Fn(&Table) -> bool) -> String {
        let is_kept = |text: &str| {
            let document = text.parse::<DocumentMut>().ok();
            let section = document.as_ref().and_then(|all| all.get("namespace"));
            let section = section.and_then(|all| all.as_array_of_tables()?.get(0));
            section.is_some_and(&is_kept)
        };
        let roots = self.0.iter().filter(|(key, _)| key.ends_with('/'));
        let kept = roots.filter(|(_, entry)| is_kept(&entry.text));
        joined(kept.flat_map(|(root, _)| self.of_root(root).map(|(_, entry)| &entry.text)))
    }

    /// The text of those that are without fault, and a sentence for each namespace of which something is left
    /// out: a later version of Frevo, or somebody else, may have written it.
    pub(crate) fn checked_text(&self) -> (String, Vec<String>) {
        let (mut text, mut faults) = (String::new(), Vec::new());
        let roots = self.0.keys().filter(|key| key.ends_with('/'));
        for root in roots {
            let all: Vec<&String> = self.of_root(root).map(|(_, entry)| &entry.text).collect();
            let (kept, fault) = without_faults(&all);
            text += &kept;
            faults.extend(fault);
        }
        (text, faults)
    }

    fn of_root<'a>(&'a self, root: &'a str) -> impl Iterator<Item = (&'a String, &'a Entry)> {
        let from = self.0.range(root.to_owned()..);
        from.take_while(move |(key, _)| key.starts_with(root))
    }

    /// The changes that lead to other entries.
    pub(crate) fn changes_to<'a>(&'a self, after: &'a Self) -> Vec<EntryChange<'a>> {
        let gone = self.0.keys().filter(|key| !after.0.contains_key(*key));
        let new = after.0.iter().filter(|(key, entry)| self.0.get(*key) != Some(*entry));
        let put = new.map(|(key, entry)| EntryChange::Put(key, &entry.text));
        gone.map(|key| EntryChange::Remove(key)).chain(put).collect()
    }
}

fn too_much(entries: usize, bytes: usize) -> Option<String> {
    if entries > ENTRIES_MAX {
        return Some(format!("there are more than {ENTRIES_MAX} roots and links"));
    }
    let is_long = u64::try_from(bytes).unwrap_or(u64::MAX) >= NETWORK_NAMESPACES_BYTES;
    is_long.then(|| format!("they have {NETWORK_NAMESPACES_BYTES} bytes or more"))
}

/// The texts in one. Each has its own lines.
fn joined<'a>(texts: impl IntoIterator<Item = &'a String>) -> String {
    let mut all = String::new();
    for text in texts {
        all += text;
        if !text.ends_with('\n') {
            all.push('\n');
        }
    }
    all
}

/// The text of a root and its links, without the links that have faults. All is left out if the root has one,
/// or if links do not go together.
fn without_faults(sections: &[&String]) -> (String, Option<String>) {
    let parsed = |sections: &[&String]| {
        let text = joined(sections.iter().copied());
        let first = |faults: Vec<frevo_config::Fault>| {
            faults.first().map(|fault| fault.what.clone()).unwrap_or_default()
        };
        Config::parse(&text).map(|_| text).map_err(first)
    };
    let why = match parsed(sections) {
        Ok(text) => return (text, None),
        Err(why) => why,
    };
    let Some((root, links)) = sections.split_first() else { return (String::new(), None) };
    let mut good = vec![*root];
    good.extend(links.iter().copied().filter(|link| parsed(&[*root, *link]).is_ok()));
    let text = parsed(&good).unwrap_or_default();
    let name = root.lines().nth(1).unwrap_or_default();
    (text, Some(format!("{name}: {why}")))
}

#[cfg(test)]
mod tests;
