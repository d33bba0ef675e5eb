//! Namespaces made of their sections.

use std::sync::Arc;

use frevo_config::{Config, NamespaceSection};
use frevo_dfs::{Namespace, Root};
use frevo_server::Share;
use frevo_server::access_rules::Rules;
use frevo_wire::fscc::eq_ignore_case;

use super::share::names;

/// Returns the namespaces of a configuration. The texts of their links, which can be many, are not kept
/// in it.
pub(crate) fn namespaces(config: &mut Config) -> Vec<Arc<Namespace>> {
    let Config { namespaces, shares, .. } = config;
    let made = namespaces.iter_mut().filter_map(|section| {
        let made = section.namespace(shares);
        section.links = Vec::new();
        // The faults of a configuration have been told before it is served.
        let tell = |fault| {
            tracing::error!(target: "frevo::server", namespace = %section.name.get_ref(),
                "the namespace is not served: {fault}");
        };
        made.map_err(tell).ok().map(Arc::new)
    });
    made.collect()
}

/// Returns the shares with the links of namespaces in them, and with a share for each root of its own. A
/// namespace of a share that is not served is not served either.
pub(crate) fn with_namespaces(
    mut shares: Vec<Share>,
    config: &Config,
    namespaces: &[Arc<Namespace>],
) -> Vec<Share> {
    for namespace in namespaces {
        let is_root = |share: &Share| eq_ignore_case(share.name(), namespace.name());
        if namespace.root == Root::Own {
            shares.push(own_root(config, namespace));
        } else if let Some(at) = shares.iter().position(is_root) {
            let share = shares.remove(at);
            shares.insert(at, share.namespace(Arc::clone(namespace)));
        }
    }
    shares
}

/// Returns the share that shows a root of its own.
fn own_root(config: &Config, namespace: &Arc<Namespace>) -> Share {
    let is_it = |section: &&NamespaceSection| {
        eq_ignore_case(section.name.get_ref().as_str(), namespace.name())
    };
    let section = config.namespaces.iter().find(is_it);
    let allow = section.map_or(&[][..], |section| &section.allow);
    let rules = Rules { allow: names(allow), ..Rules::default() };
    Share::of_namespace(Arc::clone(namespace)).rules(rules)
}

#[cfg(test)]
mod tests {
    use frevo_server::vfs;

    use super::*;

    #[test]
    fn a_root_is_a_share_or_becomes_one() {
        let text = "[[share]]\nname = \"Data\"\npath = \"/srv\"\n[[share]]\nname = \"lost\"\npath = \"/x\"\n\
                    [[namespace]]\nname = \"data\"\n[[namespace]]\nname = \"lost\"\n\
                    [[namespace]]\nname = \"files\"\ncomment = \"all\"\nallow = [\"ann\"]\n\
                    [[namespace.link]]\npath = 'a'\ntargets = ['\\\\one\\data']\n";
        let mut config = Config::parse(text).unwrap();
        let namespaces = namespaces(&mut config);
        assert_eq!((namespaces.len(), namespaces[2].links().len()), (3, 1));
        assert!(config.namespaces[2].links.is_empty());
        // The folder of the share `lost` could not be opened.
        let open = vec![Share::disk("Data", vfs::memory(1 << 20))];
        let shares = with_namespaces(open, &config, &namespaces);
        let names: Vec<_> =
            shares.iter().map(|share| (share.name(), share.is_read_only())).collect();
        assert_eq!(names, [("Data", false), ("files", true)]);
    }
}
