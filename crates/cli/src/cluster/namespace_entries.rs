//! The namespaces of a cluster as etcd keeps them: an entry for each root and each link, whose value is its section
//! in TOML. All values together, in the order of their keys, are the text of a configuration.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use frevo_cluster::limits::NAMESPACE_ENTRY_BYTES;
use frevo_config::Config;
use frevo_config::limits::{NETWORK_LINKS, NETWORK_NAMESPACES_BYTES};
use frevo_dfs::limits::NAMESPACES;
use frevo_wire::fscc::fold_name;
use sha2::{Digest, Sha256};
use toml_edit::{ArrayOfTables, Decor, DocumentMut, Item, Table};

/// Hexadecimal digits of an entry's key for the name of a namespace, and for the path of a link.
const DIGITS: usize = 32;
/// The entries that are read at most.
pub(crate) const ENTRIES_MAX: usize = NETWORK_LINKS + NAMESPACES;

/// The roots and the links, by the ends of their keys: `<namespace>/` and `<namespace>/<link>`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entries(BTreeMap<String, String>);

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

fn text_of<'a>(table: &'a Table, key: &str) -> &'a str {
    table.get(key).and_then(Item::as_str).unwrap_or_default()
}

fn root_key(root: &Table) -> String {
    format!("{}/", digest(text_of(root, "name")))
}

fn link_key(root: &str, link: &Table) -> String {
    format!("{root}{}", digest(text_of(link, "path").trim_matches('\\')))
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

/// The section of an entry with the key that it must have.
struct Section {
    key: String,
    text: String,
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
        return is_bare.then(|| Section { key: root_key(&table), text: section(table, false) });
    }
    let parent = namespace.as_table()?;
    let links = parent.get("link").filter(|_| parent.len() == 1)?.as_array_of_tables()?;
    let link = single(links)?;
    Some(Section { key: link_key(root, &link), text: section(link, true) })
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
                entries.insert(link_key(&root, &link), section(link, true));
            }
            entries.insert(root, section(table, false));
        }
        if let Some(long) = entries.values().find(|text| text.len() > NAMESPACE_ENTRY_BYTES) {
            let start: String = long.chars().take(100).collect();
            return Err(format!("an entry has more than {NAMESPACE_ENTRY_BYTES} bytes: {start}"));
        }
        Ok(Self(entries))
    }

    /// Takes what etcd has. Returns the number of those that are left out: values that are no single section
    /// of the namespace or link of their key, and links without a root.
    ///
    /// # Errors
    /// A sentence, if there is more than any node makes.
    pub(crate) fn of_etcd(
        found: impl IntoIterator<Item = (String, Vec<u8>)>,
    ) -> Result<(Self, usize), String> {
        let (mut entries, mut left_out, mut bytes) = (BTreeMap::new(), 0, 0_usize);
        for (key, value) in found {
            bytes = bytes.saturating_add(value.len());
            too_much(entries.len() + left_out + 1, bytes).map_or(Ok(()), Err)?;
            let root = key.split_inclusive('/').next().unwrap_or_default();
            let text = Some(value).filter(|value| value.len() <= NAMESPACE_ENTRY_BYTES);
            let text = text.and_then(|value| String::from_utf8(value).ok());
            let found = text.and_then(|text| section_of(&text, root));
            match found.filter(|found| found.key == key) {
                Some(found) => drop(entries.insert(key, found.text)),
                None => left_out += 1,
            }
        }
        let whole = entries.clone();
        entries.retain(|key: &String, _| {
            whole.contains_key(key.split_inclusive('/').next().unwrap_or_default())
        });
        left_out += whole.len() - entries.len();
        Ok((Self(entries), left_out))
    }

    /// Returns a sentence if these are more than a node takes.
    pub(crate) fn too_much(&self) -> Option<String> {
        too_much(self.0.len(), self.0.values().map(String::len).sum())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if these are among them.
    pub(crate) fn has_all_of(&self, others: &Self) -> bool {
        others.0.iter().all(|(key, text)| self.0.get(key) == Some(text))
    }

    /// True if these have all that is new or other in `after` than in `before`.
    pub(crate) fn has_new_of(&self, before: &Self, after: &Self) -> bool {
        before.changes_to(after).iter().all(|change| match change {
            EntryChange::Put(key, text) => self.0.get(*key).is_some_and(|own| own == text),
            EntryChange::Remove(_) => true,
        })
    }

    /// All of them as one text.
    pub(crate) fn text(&self) -> String {
        joined(self.0.values())
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
        let kept = roots.filter(|(_, text)| is_kept(text));
        joined(kept.flat_map(|(root, _)| self.of_root(root).map(|(_, text)| text)))
    }

    /// The text of those that are without fault, and a sentence for each namespace of which something is left
    /// out: a later version of Frevo, or somebody else, may have written it.
    pub(crate) fn checked_text(&self) -> (String, Vec<String>) {
        let (mut text, mut faults) = (String::new(), Vec::new());
        let roots = self.0.keys().filter(|key| key.ends_with('/'));
        for root in roots {
            let all: Vec<&String> = self.of_root(root).map(|(_, value)| value).collect();
            let (kept, fault) = without_faults(&all);
            text += &kept;
            faults.extend(fault);
        }
        (text, faults)
    }

    fn of_root<'a>(&'a self, root: &'a str) -> impl Iterator<Item = (&'a String, &'a String)> {
        let from = self.0.range(root.to_owned()..);
        from.take_while(move |(key, _)| key.starts_with(root))
    }

    /// The changes that lead to other entries.
    pub(crate) fn changes_to<'a>(&'a self, after: &'a Self) -> Vec<EntryChange<'a>> {
        let gone = self.0.keys().filter(|key| !after.0.contains_key(*key));
        let new = after.0.iter().filter(|(key, text)| self.0.get(*key) != Some(*text));
        let put = new.map(|(key, text)| EntryChange::Put(key, text));
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
mod tests {
    use super::*;

    const TEXT: &str = "# all\n[[namespace]]\nname = \"Files\"\nttl = 60\n\n[[namespace.link]]\npath = 'a\\b'\n\
        targets = ['\\\\one\\x']\n\n[[namespace.link]]\npath = \"c\"\ntargets = ['\\\\two\\y']\n\n\
        [[namespace]]\nname = \"more\"\n";

    fn pairs(entries: &Entries) -> Vec<(String, Vec<u8>)> {
        let pair = |(key, text): (&String, &String)| (key.clone(), text.clone().into_bytes());
        entries.0.iter().map(pair).collect()
    }

    #[test]
    fn a_text_comes_back_from_its_entries() {
        let entries = Entries::of_text(TEXT).unwrap();
        assert_eq!(entries.0.len(), 4);
        let text = entries.text();
        let config = Config::parse(&text).unwrap();
        assert_eq!(config.namespaces.len(), 2);
        let files = config.namespaces.iter().find(|one| one.ttl == Some(60)).unwrap();
        assert_eq!(files.links.len(), 2);
        assert_eq!(Entries::of_text(&text).unwrap(), entries);
        assert_eq!(Entries::of_etcd(pairs(&entries)).unwrap(), (entries.clone(), 0));
        assert_eq!(entries.checked_text(), (text, Vec::new()));
        // Names are compared without case.
        let other = Entries::of_text(&TEXT.replace("Files", "FILES").replace("'a", "'A")).unwrap();
        assert!(other.0.keys().eq(entries.0.keys()));
        assert!(Entries::of_text("").unwrap().is_empty());
        for wrong in ["no toml [", "namespace = 5", "[[namespace]]\nname = \"a\"\nlink = 5"] {
            assert!(Entries::of_text(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_change_is_that_of_one_entry() {
        let before = Entries::of_text(TEXT).unwrap();
        assert!(before.changes_to(&before).is_empty());
        let after = Entries::of_text(&TEXT.replace("two", "three")).unwrap();
        let changes = before.changes_to(&after);
        let [EntryChange::Put(_, text)] = &*changes else { panic!("{changes:?}") };
        assert!(text.starts_with("[[namespace.link]]\npath = \"c\"\n") && text.contains("three"));
        let none = Entries::default();
        assert_eq!((before.changes_to(&none).len(), none.changes_to(&before).len()), (4, 4));
    }

    #[test]
    fn values_of_somebody_else_are_left_out() {
        let good = Entries::of_text(TEXT).unwrap();
        let all = pairs(&good);
        let link = all.iter().position(|(key, _)| !key.ends_with('/')).unwrap();
        for forged in [
            "[[share]]\nname = \"root\"\npath = \"/\"\n",
            "[[namespace]]\nname = \"Files\"\n[[share]]\nname = \"root\"\npath = \"/\"\n",
            "[[namespace.link]]\npath = \"other\"\ntargets = ['\\\\one\\x']\n",
            "[[namespace.link]]\n[[namespace.link]]\n",
            "no toml [",
            "",
        ] {
            let mut pairs = all.clone();
            pairs[link].1 = forged.as_bytes().to_vec();
            let (taken, left_out) = Entries::of_etcd(pairs).unwrap();
            assert_eq!((taken.0.len(), left_out), (3, 1), "{forged}");
        }
        // A header that no node writes, which may be only once in a text.
        let mut explicit = all.clone();
        for (_, value) in explicit.iter_mut().filter(|(key, _)| !key.ends_with('/')) {
            *value = [b"[namespace] # all\n", &value[..]].concat();
        }
        let (taken, left_out) = Entries::of_etcd(explicit).unwrap();
        assert_eq!((&taken, left_out), (&good, 0));
        assert!(Config::parse(&taken.text()).is_ok());
        let mut no_text = all.clone();
        no_text[link].1 = vec![0xFF];
        assert_eq!(Entries::of_etcd(no_text).unwrap().1, 1);
        // The links of a root that is left out.
        let without: Vec<_> =
            all.iter().filter(|(key, _)| *key != root_key_of("files")).cloned().collect();
        let (taken, left_out) = Entries::of_etcd(without).unwrap();
        assert_eq!((taken.0.len(), left_out), (1, 2));
    }

    fn root_key_of(name: &str) -> String {
        format!("{}/", digest(name))
    }

    #[test]
    fn a_fault_does_not_stop_the_others() {
        let bad_link = TEXT.replace("\\\\two\\y", "nowhere");
        let (text, faults) = Entries::of_text(&bad_link).unwrap().checked_text();
        let config = Config::parse(&text).unwrap();
        let links: usize = config.namespaces.iter().map(|one| one.links.len()).sum();
        assert_eq!((config.namespaces.len(), links, faults.len()), (2, 1, 1));
        let later = TEXT.replace("ttl = 60", "newer = true");
        let (text, faults) = Entries::of_text(&later).unwrap().checked_text();
        assert_eq!((Config::parse(&text).unwrap().namespaces.len(), faults.len()), (1, 1));
        // Two links, of which one is below the other.
        let (text, faults) =
            Entries::of_text(&TEXT.replace("\"c\"", "\"a\"")).unwrap().checked_text();
        assert_eq!((Config::parse(&text).unwrap().namespaces.len(), faults.len()), (1, 1));
    }

    #[test]
    fn entries_are_bounded() {
        let comment = |len: usize| {
            let text = format!("[[namespace]]\nname = \"a\"\n#{}\n", "c".repeat(len));
            let end = vec![(root_key_of("a"), text.into_bytes())];
            Entries::of_etcd(end).unwrap().1
        };
        let room = NAMESPACE_ENTRY_BYTES - "[[namespace]]\nname = \"a\"\n#\n".len();
        assert_eq!([comment(room - 1), comment(room), comment(room + 1)], [0, 0, 1]);
        let long = format!("[[namespace]]\nname = \"a\"\nx = \"{}\"\n", "c".repeat(room));
        assert!(Entries::of_text(&long).unwrap_err().contains("32768 bytes"));
        let many = |count: usize| (0..count).map(|at| (format!("x/{at}"), Vec::new()));
        assert_eq!(Entries::of_etcd(many(ENTRIES_MAX)).unwrap().1, ENTRIES_MAX);
        assert!(Entries::of_etcd(many(ENTRIES_MAX + 1)).is_err());
        let large = (0..300).map(|at| (format!("x/{at}"), vec![b' '; NAMESPACE_ENTRY_BYTES]));
        assert!(Entries::of_etcd(large).unwrap_err().contains("bytes"));
    }
}
