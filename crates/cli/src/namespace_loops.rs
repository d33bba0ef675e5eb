//! Interlinks of this server that lead back to where they are: whoever walks the whole namespace would not
//! come to an end. Clients bound their steps, so that one path does no harm.

use std::collections::{BTreeMap, BTreeSet};

use frevo_config::Config;
use frevo_dfs::{Link, Namespace};
use frevo_wire::fscc::fold_name;

use crate::accounts::host_name;

/// A path of a namespace, or of its root. Both texts are folded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct LinkPath {
    namespace: String,
    /// The path below the root; empty for the root.
    path: String,
}

impl LinkPath {
    fn new(namespace: &str, path: &str) -> Self {
        Self { namespace: fold_name(namespace), path: fold_name(path) }
    }
}

/// A link that leads to namespaces of this server.
struct Interlink<'a> {
    namespace: &'a str,
    link: &'a Link,
    to: Vec<LinkPath>,
}

/// Returns a sentence for each interlink that closes a circle.
pub(crate) fn find(config: &Config, namespaces: &[Namespace]) -> Vec<String> {
    let own = own_names(config);
    // The interlinks of each namespace by their folded paths.
    let mut all: BTreeMap<LinkPath, Interlink<'_>> = BTreeMap::new();
    let known: BTreeSet<String> = namespaces.iter().map(|one| fold_name(one.name())).collect();
    for namespace in namespaces {
        for link in namespace.links() {
            let targets = link.targets().iter();
            let inner = targets.filter(|target| is_own(&own, target.server()));
            let to = inner.map(|target| LinkPath::new(target.share(), target.folder()));
            let to: Vec<LinkPath> = to.filter(|to| known.contains(&to.namespace)).collect();
            if !to.is_empty() {
                let place = LinkPath::new(namespace.name(), link.path());
                all.insert(place, Interlink { namespace: namespace.name(), link, to });
            }
        }
    }
    Search { all: &all, states: BTreeMap::new(), found: Vec::new() }.run()
}

/// The names by which clients may call this server, folded.
fn own_names(config: &Config) -> BTreeSet<String> {
    let host = host_name();
    let (server, cluster) = (&config.server, &config.cluster);
    let named = server.name.iter().map(|name| name.as_str());
    let named = named.chain([host.as_str(), "localhost"]);
    let named = named.chain(cluster.name.iter().chain(&cluster.node).map(|name| name.0.as_str()));
    let more = server.target_names.iter().flatten().map(String::as_str);
    named.chain(more).map(fold_name).collect()
}

/// True for a name of this server, with or without a domain.
fn is_own(own: &BTreeSet<String>, server: &str) -> bool {
    let server = fold_name(server);
    let is_address = server.parse::<std::net::IpAddr>().is_ok();
    let first = server.split('.').next().filter(|_| !is_address);
    own.contains(&server) || first.is_some_and(|first| own.contains(first))
}

/// The state of an interlink in the search.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    /// On the way from the first interlink to the present one.
    Open,
    /// Nothing new is behind it.
    Done,
}

/// A search through all interlinks, in depth.
struct Search<'a> {
    all: &'a BTreeMap<LinkPath, Interlink<'a>>,
    states: BTreeMap<&'a LinkPath, Visit>,
    found: Vec<String>,
}

impl<'a> Search<'a> {
    fn run(mut self) -> Vec<String> {
        let all = self.all;
        for first in all.keys() {
            if self.states.contains_key(first) {
                continue;
            }
            self.states.insert(first, Visit::Open);
            let mut way = vec![(first, self.behind(first))];
            while let Some((at, left)) = way.last_mut() {
                let (at, Some(next)) = (*at, left.pop()) else {
                    let (at, _) = way.pop().unwrap_or((first, Vec::new()));
                    self.states.insert(at, Visit::Done);
                    continue;
                };
                match self.states.get(next) {
                    Some(Visit::Done) => {}
                    Some(Visit::Open) => self.tell(at, next),
                    None => {
                        self.states.insert(next, Visit::Open);
                        way.push((next, self.behind(next)));
                    }
                }
            }
        }
        self.found
    }

    /// The interlinks that a walk finds behind one: those below its targets, and one on the way to a target.
    fn behind(&self, place: &LinkPath) -> Vec<&'a LinkPath> {
        let Some(interlink) = self.all.get(place) else { return Vec::new() };
        let mut behind = Vec::new();
        for to in &interlink.to {
            let folder = to.path.as_str();
            let below = self.all.range(to..).map(|(place, _)| place);
            let below = below.take_while(|place| {
                place.namespace == to.namespace && place.path.starts_with(folder)
            });
            behind.extend(below.filter(|place| is_within(&place.path, folder)));
            let ends = folder.match_indices('\\').map(|(end, _)| end);
            let above = ends.filter_map(|end| folder.get(..end));
            let above = above.filter_map(|path| {
                let place = LinkPath { namespace: to.namespace.clone(), path: path.to_owned() };
                self.all.get_key_value(&place)
            });
            behind.extend(above.map(|(place, _)| place));
        }
        behind
    }

    /// Tells of the interlink `at`, behind which is `back`, through which a walk has come.
    fn tell(&mut self, at: &LinkPath, back: &LinkPath) {
        let (Some(last), Some(first)) = (self.all.get(at), self.all.get(back)) else { return };
        let name = |one: &Interlink<'_>| format!(r"{}\{}", one.namespace, one.link.path());
        let text = match at == back {
            true => format!("the link {} leads to itself", name(last)),
            false => format!("the link {} leads back to the link {}", name(last), name(first)),
        };
        self.found.push(format!("{text}: a walk through the namespace does not end there"));
    }
}

/// True for a path that is `folder` or below it.
fn is_within(path: &str, folder: &str) -> bool {
    let rest = path.strip_prefix(folder);
    folder.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('\\'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loops(links: &[(&str, &str, &str)]) -> Vec<String> {
        let mut text = String::from("[server]\nname = \"box\"\n");
        for namespace in ["files", "more", "third"] {
            text.push_str(&format!("[[namespace]]\nname = \"{namespace}\"\n"));
            for (_, path, target) in links.iter().filter(|(of, ..)| *of == namespace) {
                let link = format!("path = '{path}'\ntargets = ['{target}']\n");
                text.push_str(&format!("[[namespace.link]]\n{link}"));
            }
        }
        let config = Config::parse(&text).unwrap();
        let all = config.namespaces.iter().map(|one| one.namespace(&config.shares).unwrap());
        find(&config, &all.collect::<Vec<_>>())
    }

    #[test]
    fn a_circle_has_one_sentence() {
        for none in [
            &[("files", "a", r"\\box\more"), ("files", "b", r"\\box\more")][..],
            &[("files", "a", r"\\other\files")],
            &[("files", "a", r"\\box\plain")],
            &[("files", r"a\x", r"\\box\files\b"), ("files", r"b\y", r"\\one\data")],
            &[("files", r"a\x", r"\\box\files\b"), ("files", "bb", r"\\box\files\b")],
            &[("files", "a", r"\\box\more\x"), ("more", "y", r"\\box\files")],
        ] {
            assert_eq!(loops(none), [""; 0], "{none:?}");
        }
        let itself =
            "the link files\\a leads to itself: a walk through the namespace does not end there";
        assert_eq!(loops(&[("files", "a", r"\\BOX\Files")]), [itself]);
        assert_eq!(loops(&[("files", "a", r"\\box.example.com\files\a\b")]), [itself]);
        let found = loops(&[
            ("files", "a", r"\\box\more"),
            ("more", r"deep\b", r"\\box\third"),
            ("third", "c", r"\\one\data"),
            ("third", "d", r"\\box\files"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].starts_with(r"the link third\d leads back to the link files\a"),
            "{found:?}"
        );
        let found = loops(&[("files", "a", r"\\box\more\x"), ("more", r"x\y", r"\\box\files\a\z")]);
        assert_eq!(found.len(), 1, "{found:?}");
    }
}
