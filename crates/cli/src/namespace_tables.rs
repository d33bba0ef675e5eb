//! Changes of `[[namespace]]` sections in a TOML document, whose comments stay as they are: those of
//! `frevo namespace`, and those that administrators ask for over the network.

use frevo_server::{
    NamespaceChange, NamespacePriority, NamespaceSettings, NotChanged, Priority, StateChange,
    TargetName,
};
use frevo_wire::fscc::fold_name;
use toml_edit::{Array, ArrayOfTables, DocumentMut, InlineTable, Item, Table, Value};

use crate::cluster::{is_below, overlaps};

/// Makes a change in a document. `has_share` is true for the name of a share.
///
/// # Errors
/// When the change cannot be made; the document is then not to be used.
pub(crate) fn apply(
    document: &mut DocumentMut,
    change: &NamespaceChange,
    has_share: impl Fn(&str) -> bool,
) -> Result<(), NotChanged> {
    match change {
        NamespaceChange::AddRoot { namespace, .. } => {
            if !has_share(namespace) {
                return Err(NotChanged::NoShare(format!("there is no share {namespace}")));
            }
            add_namespace(document, namespace)
        }
        NamespaceChange::RemoveRoot { namespace } => {
            namespace_of(document, namespace)?;
            sections(document)?.retain(|table| !is_called(table, namespace));
            Ok(())
        }
        NamespaceChange::AddLink { path, target, comment, must_be_new } => {
            let links = links_of(namespace_of(document, &path.namespace)?)?;
            add_link(links, &path.link, target, comment, *must_be_new)
        }
        NamespaceChange::RemoveLink { path, target } => {
            let links = links_of(namespace_of(document, &path.namespace)?)?;
            remove_link(links, &path.link, target.as_ref())
        }
        NamespaceChange::Set { path, target, settings } => {
            let namespace = namespace_of(document, &path.namespace)?;
            if path.is_root() {
                return set_root(namespace, target.as_ref(), settings);
            }
            let links = links_of(namespace)?;
            let at = position(links, &path.link)?;
            let link = links.get_mut(at).ok_or_else(|| no_link(&path.link))?;
            match target {
                Some(target) => set_target(link, target, settings),
                None => {
                    set(link, settings);
                    Ok(())
                }
            }
        }
        NamespaceChange::Move { from, to, replaces } => {
            let links = links_of(namespace_of(document, &from.namespace)?)?;
            move_links(links, &from.link, &to.link, *replaces)
        }
    }
}

/// Adds an empty namespace.
pub(crate) fn add_namespace(document: &mut DocumentMut, name: &str) -> Result<(), NotChanged> {
    let all = sections(document)?;
    if all.iter().any(|table| is_called(table, name)) {
        return Err(NotChanged::Exists(format!("there is a namespace {name}")));
    }
    let mut table = Table::new();
    table.insert("name", toml_edit::value(name));
    table.decor_mut().set_prefix("\n");
    all.push(table);
    Ok(())
}

/// True for the section of the share, or of the namespace, of this name.
pub(crate) fn is_called(table: &Table, name: &str) -> bool {
    let found = table.get("name").and_then(Item::as_str).unwrap_or_default();
    fold_name(found) == fold_name(name)
}

/// The sections of all namespaces.
pub(crate) fn sections(document: &mut DocumentMut) -> Result<&mut ArrayOfTables, NotChanged> {
    let item = document.entry("namespace").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    item.as_array_of_tables_mut()
        .ok_or_else(|| NotChanged::Failed(String::from("write each namespace as [[namespace]]")))
}

/// The section of a namespace.
pub(crate) fn namespace_of<'a>(
    document: &'a mut DocumentMut,
    name: &str,
) -> Result<&'a mut Table, NotChanged> {
    let found = sections(document)?.iter_mut().find(|table| is_called(table, name));
    found.ok_or_else(|| NotChanged::Absent(format!("there is no namespace {name}")))
}

/// The sections of the links of a namespace.
pub(crate) fn links_of(namespace: &mut Table) -> Result<&mut ArrayOfTables, NotChanged> {
    let item = namespace.entry("link").or_insert(Item::ArrayOfTables(ArrayOfTables::new()));
    item.as_array_of_tables_mut()
        .ok_or_else(|| NotChanged::Failed(String::from("write each link as [[namespace.link]]")))
}

fn no_link(path: &str) -> NotChanged {
    NotChanged::Absent(format!("there is no link {path}"))
}

/// The path of a link, folded, without backslashes at its ends.
fn path_of(link: &Table) -> String {
    let path = link.get("path").and_then(Item::as_str).unwrap_or_default();
    fold_name(path.trim_matches('\\'))
}

fn position(links: &ArrayOfTables, path: &str) -> Result<usize, NotChanged> {
    let wanted = fold_name(path);
    links.iter().position(|link| path_of(link) == wanted).ok_or_else(|| no_link(path))
}

fn targets_of(link: &mut Table) -> Result<&mut Array, NotChanged> {
    let targets = link.get_mut("targets").and_then(Item::as_array_mut);
    targets.ok_or_else(|| NotChanged::Failed(String::from("`targets` of the link is not a list")))
}

/// The path of a target, folded, without backslashes before it.
fn target_path(target: &Value) -> String {
    let of_table = || target.as_inline_table()?.get("path")?.as_str();
    let path = target.as_str().or_else(of_table).unwrap_or_default();
    fold_name(path.trim_matches('\\'))
}

fn target_position(targets: &Array, target: &TargetName) -> Option<usize> {
    let wanted = fold_name(target.unc().trim_matches('\\'));
    targets.iter().position(|known| target_path(known) == wanted)
}

/// A text in TOML. In single quotes backslashes stand for themselves.
fn text(text: &str) -> Value {
    let is_literal = !text.contains(['\'', '\n', '\r']) && text.contains('\\');
    let literal = is_literal.then(|| format!("'{text}'").parse::<Value>().ok()).flatten();
    literal.unwrap_or_else(|| Value::from(text))
}

/// MS-DFSNM 3.1.4.1.3.
fn add_link(
    links: &mut ArrayOfTables,
    path: &str,
    target: &TargetName,
    comment: &str,
    must_be_new: bool,
) -> Result<(), NotChanged> {
    let folded = fold_name(path);
    if let Some(link) = links.iter_mut().find(|link| path_of(link) == folded) {
        if must_be_new {
            return Err(NotChanged::Exists(format!("there is a link {path}")));
        }
        let targets = targets_of(link)?;
        if target_position(targets, target).is_some() {
            let why = format!("the link {path} has the target {}", target.unc());
            return Err(NotChanged::Exists(why));
        }
        targets.push(text(&target.unc()));
        return Ok(());
    }
    if let Some(other) = links.iter().find(|link| overlaps(&path_of(link), &folded)) {
        let other = other.get("path").and_then(Item::as_str).unwrap_or_default();
        return Err(NotChanged::Exists(format!("the link {path} overlaps the link {other}")));
    }
    let mut link = Table::new();
    link.insert("path", Item::Value(text(path)));
    let mut targets = Array::new();
    targets.push(text(&target.unc()));
    link.insert("targets", toml_edit::value(targets));
    if !comment.is_empty() {
        link.insert("comment", toml_edit::value(comment));
    }
    link.decor_mut().set_prefix("\n");
    links.push(link);
    Ok(())
}

/// MS-DFSNM 3.1.4.1.4.
fn remove_link(
    links: &mut ArrayOfTables,
    path: &str,
    target: Option<&TargetName>,
) -> Result<(), NotChanged> {
    let at = position(links, path)?;
    if let Some(target) = target {
        let link = links.get_mut(at).ok_or_else(|| no_link(path))?;
        let targets = targets_of(link)?;
        let found = target_position(targets, target).ok_or_else(|| no_target(path, target))?;
        if targets.len() > 1 {
            targets.remove(found);
            return Ok(());
        }
    }
    links.remove(at);
    Ok(())
}

fn no_target(path: &str, target: &TargetName) -> NotChanged {
    NotChanged::NoTarget(format!("the link {path} has no target {}", target.unc()))
}

/// Sets settings of the root.
fn set_root(
    namespace: &mut Table,
    target: Option<&TargetName>,
    settings: &NamespaceSettings,
) -> Result<(), NotChanged> {
    if let Some(target) = target {
        let name = namespace.get("name").and_then(Item::as_str).unwrap_or_default();
        let why = format!("the root {name} has no settings of its target {}", target.unc());
        let is_root = fold_name(&target.share) == fold_name(name);
        return Err(if is_root { NotChanged::Unsupported(why) } else { NotChanged::NoTarget(why) });
    }
    if settings.comment.is_some() {
        let why = "the comment of a root is that of its share";
        return Err(NotChanged::Unsupported(why.to_owned()));
    }
    set(namespace, settings);
    Ok(())
}

/// Sets settings of a link, or of a root.
fn set(table: &mut Table, settings: &NamespaceSettings) {
    match settings.comment.as_deref() {
        Some("") => drop(table.remove("comment")),
        Some(comment) => put(table, "comment", comment.into()),
        None => {}
    }
    match settings.state {
        Some(StateChange::Online) => drop(table.remove("state")),
        Some(StateChange::Offline) => put(table, "state", "offline".into()),
        None => {}
    }
    if let Some(ttl) = settings.ttl {
        put(table, "ttl", i64::from(ttl).into());
    }
    match settings.failback {
        Some(true) => put(table, "failback", true.into()),
        Some(false) => drop(table.remove("failback")),
        None => {}
    }
}

/// Sets a key; a comment behind its value stays.
fn put(table: &mut Table, key: &str, mut value: Value) {
    if let Some(old) = table.get(key).and_then(Item::as_value) {
        *value.decor_mut() = old.decor().clone();
    }
    table.insert(key, Item::Value(value));
}

/// Sets the state and the priority of a target, which becomes a table.
fn set_target(
    link: &mut Table,
    target: &TargetName,
    settings: &NamespaceSettings,
) -> Result<(), NotChanged> {
    let path = link.get("path").and_then(Item::as_str).unwrap_or_default().to_owned();
    let targets = targets_of(link)?;
    let at = target_position(targets, target).ok_or_else(|| no_target(&path, target))?;
    let old = targets.get(at).cloned().unwrap_or_else(|| text(&target.unc()));
    let mut table = match &old {
        Value::InlineTable(table) => table.clone(),
        plain => {
            let mut table = InlineTable::new();
            table.insert("path", plain.clone().decorated(" ", ""));
            table
        }
    };
    match settings.state {
        Some(StateChange::Online) => drop(table.remove("state")),
        Some(StateChange::Offline) => drop(table.insert("state", "offline".into())),
        None => {}
    }
    if let Some(Priority { class, rank }) = settings.priority {
        match priority_word(class) {
            "normal" => drop(table.remove("priority")),
            word => drop(table.insert("priority", word.into())),
        }
        match rank {
            0 => drop(table.remove("rank")),
            rank => drop(table.insert("rank", i64::from(rank).into())),
        }
    }
    let mut new = match table.get("path") {
        Some(path) if table.len() == 1 => path.clone(),
        _ => {
            table.fmt();
            Value::InlineTable(table)
        }
    };
    *new.decor_mut() = old.decor().clone();
    targets.replace_formatted(at, new);
    Ok(())
}

/// The word of a priority class in the configuration.
const fn priority_word(class: NamespacePriority) -> &'static str {
    match class {
        NamespacePriority::GLOBAL_HIGH => "global-high",
        NamespacePriority::SITE_COST_HIGH => "high",
        NamespacePriority::SITE_COST_LOW => "low",
        NamespacePriority::GLOBAL_LOW => "global-low",
        _ => "normal",
    }
}

/// MS-DFSNM 3.1.4.1.8: a link, or all links below a folder.
fn move_links(
    links: &mut ArrayOfTables,
    from: &str,
    to: &str,
    replaces: bool,
) -> Result<(), NotChanged> {
    let old = fold_name(from);
    let is_moved = |path: &str| path == old || is_below(path, &old);
    // The new path of each link; None for a link that stays.
    let new: Vec<Option<String>> = links
        .iter()
        .map(|link| {
            let path = link.get("path").and_then(Item::as_str).unwrap_or_default();
            let path = path.trim_matches('\\');
            let rest: Vec<&str> = path.split('\\').skip(from.split('\\').count()).collect();
            let parts = std::iter::once(to).chain(rest);
            is_moved(&path_of(link)).then(|| parts.collect::<Vec<_>>().join("\\"))
        })
        .collect();
    if new.iter().all(Option::is_none) {
        return Err(NotChanged::Absent(format!("there is no link at or below {from}")));
    }
    let targets: Vec<String> = new.iter().flatten().map(|path| fold_name(path)).collect();
    let mut replaced = Vec::new();
    for (at, link) in links.iter().enumerate() {
        let path = path_of(link);
        let is_staying = new.get(at).is_none_or(Option::is_none);
        if !is_staying || !targets.iter().any(|target| overlaps(target, &path)) {
            continue;
        }
        if !replaces || !targets.contains(&path) {
            return Err(NotChanged::Exists(format!("there is a link {path}")));
        }
        replaced.push(at);
    }
    for (link, path) in links.iter_mut().zip(&new) {
        if let Some(path) = path {
            put(link, "path", text(path));
        }
    }
    for at in replaced.into_iter().rev() {
        links.remove(at);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use frevo_config::Config;
    use frevo_server::EntryPath;

    use super::*;

    const BEFORE: &str = "# all of it\n[[share]]\nname = \"files\"\npath = \"/srv\"\n\n\
        # the tree\n[[namespace]]\nname = \"files\" # of all\n\n[[namespace.link]]\npath = 'a\\b' # deep\n\
        targets = ['\\\\one\\x', # the first\n  '\\\\two\\y']\ncomment = \"mine\" # not yours\n";

    fn path(link: &str) -> EntryPath {
        EntryPath::parse(&format!(r"\\box\FILES\{link}")).unwrap()
    }

    fn target(server: &str, share: &str) -> TargetName {
        TargetName { server: server.to_owned(), share: share.to_owned() }
    }

    fn add(link: &str, server: &str, must_be_new: bool) -> NamespaceChange {
        let (path, target) = (path(link), target(server, "x"));
        NamespaceChange::AddLink { path, target, comment: String::from("c"), must_be_new }
    }

    fn set_of(link: &str, one: Option<TargetName>, settings: NamespaceSettings) -> NamespaceChange {
        NamespaceChange::Set { path: path(link), target: one, settings }
    }

    fn moved(from: &str, to: &str, replaces: bool) -> NamespaceChange {
        NamespaceChange::Move { from: path(from), to: path(to), replaces }
    }

    /// Makes changes one after the other. The result is a configuration without faults.
    fn after(before: &str, changes: &[NamespaceChange]) -> Result<String, NotChanged> {
        let mut document = before.parse::<DocumentMut>().unwrap();
        for change in changes {
            apply(&mut document, change, |name| name == "files" || name == "more")?;
        }
        let text = document.to_string();
        Config::parse(&text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
        Ok(text)
    }

    #[test]
    fn links_and_targets_are_added_and_removed() {
        let text =
            after(BEFORE, &[add(r"a\c", "three", true), add(r"A\B", "three", false)]).unwrap();
        let config = Config::parse(&text).unwrap();
        let [files] = &*config.namespaces else { panic!("{text}") };
        let paths: Vec<_> = files.links.iter().map(|link| &**link.path.get_ref()).collect();
        assert_eq!(paths, [r"a\b", r"a\c"]);
        let targets = |at: usize| -> Vec<&str> {
            files.links[at].targets.get_ref().iter().map(|target| &*target.path).collect()
        };
        assert_eq!(targets(0), [r"\\one\x", r"\\two\y", r"\\three\x"]);
        assert_eq!(targets(1), [r"\\three\x"]);
        assert_eq!((&*files.links[0].comment, &*files.links[1].comment), ("mine", "c"));
        for comment in
            ["# all of it", "# the tree", "# of all", "# deep", "# the first", "# not yours"]
        {
            assert!(text.contains(comment), "{comment}: {text}");
        }
        for (change, is_it) in [
            (add(r"a\b", "three", true), "there is a link"),
            (add(r"a\b", "ONE", false), "has the target"),
            (add("a", "three", false), "overlaps"),
            (add(r"a\b\c", "three", false), "overlaps"),
        ] {
            let why = after(BEFORE, std::slice::from_ref(&change)).unwrap_err();
            assert!(matches!(&why, NotChanged::Exists(text) if text.contains(is_it)), "{why:?}");
        }
        let remove = |link, target| NamespaceChange::RemoveLink { path: path(link), target };
        let one = remove(r"a\b", Some(target("one", "X")));
        let two = remove(r"a\b", Some(target("two", "y")));
        let text = after(BEFORE, std::slice::from_ref(&one)).unwrap();
        assert_eq!(Config::parse(&text).unwrap().namespaces[0].links[0].targets.get_ref().len(), 1);
        let text = after(BEFORE, &[one, two]).unwrap();
        assert!(!text.contains("[[namespace.link]]"), "{text}");
        assert_eq!(after(BEFORE, &[remove(r"a\b", None)]).unwrap(), text);
        let absent = after(BEFORE, &[remove("a", None)]);
        assert!(matches!(absent, Err(NotChanged::Absent(_))), "{absent:?}");
        let absent = after(BEFORE, &[remove(r"a\b", Some(target("one", "y")))]);
        assert!(matches!(absent, Err(NotChanged::NoTarget(_))), "{absent:?}");
    }

    #[test]
    fn settings_are_put_and_taken_away() {
        let offline = NamespaceSettings {
            comment: Some(String::from("new")),
            state: Some(StateChange::Offline),
            ttl: Some(77),
            failback: Some(true),
            priority: None,
        };
        let text = after(BEFORE, &[set_of(r"a\b", None, offline.clone())]).unwrap();
        let link = Config::parse(&text).unwrap().namespaces[0].links[0].clone();
        assert_eq!((&*link.comment, link.ttl, link.failback), ("new", Some(77), true));
        assert!(link.state.is_some() && text.contains("# not yours"), "{text}");
        let online = NamespaceSettings {
            comment: Some(String::new()),
            state: Some(StateChange::Online),
            failback: Some(false),
            ..NamespaceSettings::default()
        };
        let text = after(&text, &[set_of(r"a\b", None, online)]).unwrap();
        let link = Config::parse(&text).unwrap().namespaces[0].links[0].clone();
        assert_eq!((&*link.comment, link.ttl, link.failback), ("", Some(77), false));
        assert!(link.state.is_none());

        let class = NamespacePriority::SITE_COST_LOW;
        let low = NamespaceSettings {
            state: Some(StateChange::Offline),
            priority: Some(Priority { class, rank: 3 }),
            ..NamespaceSettings::default()
        };
        let text = after(BEFORE, &[set_of(r"a\b", Some(target("ONE", "x")), low)]).unwrap();
        assert!(text.contains("# the first"), "{text}");
        let link = Config::parse(&text).unwrap().namespaces[0].links[0].clone();
        let [one, two] = &**link.targets.get_ref() else { panic!("{text}") };
        assert!(one.state.is_some() && one.priority.is_some() && one.rank == Some(3), "{text}");
        assert_eq!((&*one.path, two.rank), (r"\\one\x", None));
        let normal = NamespaceSettings {
            state: Some(StateChange::Online),
            priority: Some(Priority::default()),
            ..NamespaceSettings::default()
        };
        // A target without settings of its own is a text again.
        let back = after(&text, &[set_of(r"a\b", Some(target("one", "x")), normal)]).unwrap();
        assert!(!back.contains('{'), "{back}");

        let ttl = NamespaceSettings { ttl: Some(9), ..NamespaceSettings::default() };
        let text = after(BEFORE, &[set_of("", None, ttl)]).unwrap();
        assert_eq!(Config::parse(&text).unwrap().namespaces[0].ttl, Some(9));
        let why = after(BEFORE, &[set_of("", None, offline)]).unwrap_err();
        assert!(matches!(why, NotChanged::Unsupported(_)), "{why:?}");
        let of = |one| after(BEFORE, &[set_of("", Some(one), NamespaceSettings::default())]);
        assert!(matches!(of(target("box", "files")), Err(NotChanged::Unsupported(_))));
        assert!(matches!(of(target("box", "other")), Err(NotChanged::NoTarget(_))));
    }

    #[test]
    fn links_move_alone_and_with_their_folder() {
        let paths = |text: &str| -> Vec<String> {
            let links = &Config::parse(text).unwrap().namespaces[0].links;
            links.iter().map(|link| link.path.get_ref().clone()).collect()
        };
        let two = after(BEFORE, &[add(r"a\c\d", "three", true), add("e", "four", true)]).unwrap();
        let text = after(&two, &[moved("A", r"n\m", false)]).unwrap();
        assert_eq!(paths(&text), [r"n\m\b", r"n\m\c\d", "e"]);
        assert!(text.contains("# deep"), "{text}");
        let text = after(&two, &[moved(r"a\c\d", "z", false)]).unwrap();
        assert_eq!(paths(&text), [r"a\b", "z", "e"]);
        // A link that is in the way, and one that the moved link would be above of.
        for (from, to, replaces) in [(r"a\b", "e", false), ("e", "a", true), ("e", "a", false)] {
            let why = after(&two, &[moved(from, to, replaces)]).unwrap_err();
            assert!(matches!(why, NotChanged::Exists(_)), "{from} {to}");
        }
        let text = after(&two, &[moved(r"a\b", "e", true)]).unwrap();
        assert_eq!(paths(&text), ["e", r"a\c\d"]);
        let why = after(&two, &[moved("none", "x", false)]).unwrap_err();
        assert!(matches!(why, NotChanged::Absent(_)), "{why:?}");
    }

    #[test]
    fn shares_become_roots() {
        let add = |name: &str| NamespaceChange::AddRoot {
            namespace: name.to_owned(),
            comment: String::new(),
        };
        let with = BEFORE
            .replace("\n\n# the tree", "\n[[share]]\nname = \"more\"\npath = \"/x\"\n\n# the tree");
        let text = after(&with, &[add("more")]).unwrap();
        assert_eq!(Config::parse(&text).unwrap().namespaces.len(), 2);
        assert!(matches!(
            after(&with, &[add("Files")]),
            Err(NotChanged::NoShare(_) | NotChanged::Exists(_))
        ));
        assert!(matches!(after(&with, &[add("files")]), Err(NotChanged::Exists(_))));
        assert!(matches!(after(&with, &[add("none")]), Err(NotChanged::NoShare(_))));
        let remove = NamespaceChange::RemoveRoot { namespace: String::from("MORE") };
        assert_eq!(after(&text, std::slice::from_ref(&remove)).unwrap(), with);
        assert!(matches!(after(&with, &[remove]), Err(NotChanged::Absent(_))));
    }
}
