//! The personalities of a node of a cluster: MS-SRVS 3.1.6.8.
//!
//! A node has two names. By the name of the cluster clients see the shares of the cluster, at whichever node
//! they are; by the name of the node they see the shares that are this server's alone. By an address, or
//! another name, they see all.

use crate::shares::share::{Share, Target};

/// The names of a node of a cluster, by which clients see one part of its shares each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterNames {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of this node.
    pub node: String,
}

/// The shares that a client sees by the name of the server that it has used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All shares.
    All,
    /// Shares of the cluster.
    Cluster,
    /// Shares of this server alone.
    Node,
}

impl ClusterNames {
    /// The scope of `server`: a name, also with its domain, or an address.
    pub(crate) fn scope(&self, server: &str) -> Scope {
        let is_it = |name: &str| {
            let head = server.get(..name.len());
            let rest = server.get(name.len()..).unwrap_or_default();
            head.is_some_and(|head| head.eq_ignore_ascii_case(name))
                && (rest.is_empty() || rest.starts_with('.'))
        };
        match (is_it(&self.cluster), is_it(&self.node)) {
            (true, false) => Scope::Cluster,
            (false, true) => Scope::Node,
            _ => Scope::All,
        }
    }
}

impl Scope {
    /// True if `share` is in the scope. Pipes are in each.
    pub(crate) const fn shows(self, share: &Share) -> bool {
        match self {
            Self::All => true,
            _ if matches!(share.target, Target::Pipes) => true,
            Self::Cluster => share.clustered,
            Self::Node => !share.clustered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_scopes() {
        let names = ClusterNames { cluster: "nas".into(), node: "n1".into() };
        for (server, scope) in [
            ("nas", Scope::Cluster),
            ("NAS", Scope::Cluster),
            ("nas.example.com", Scope::Cluster),
            ("n1", Scope::Node),
            ("N1.example.com", Scope::Node),
            ("n10", Scope::All),
            ("n", Scope::All),
            ("nas2.example.com", Scope::All),
            ("files.nas", Scope::All),
            ("192.0.2.1", Scope::All),
            ("2001-db8--1.ipv6-literal.net", Scope::All),
            ("größe", Scope::All),
            ("", Scope::All),
        ] {
            assert_eq!(names.scope(server), scope, "{server}");
        }
        let same = ClusterNames { cluster: "nas".into(), node: "nas".into() };
        assert_eq!(same.scope("nas"), Scope::All, "the names do not differ");
    }

    #[test]
    fn pipes_are_in_each_scope() {
        let share = |target| Share::new("x", target);
        let pipes = share(Target::Pipes);
        assert!([Scope::All, Scope::Cluster, Scope::Node].iter().all(|scope| scope.shows(&pipes)));
        let disk = Share::disk("x", crate::vfs::memory(1 << 20));
        let clustered = disk.clone().clustered(true);
        for (scope, own, of_cluster) in
            [(Scope::All, true, true), (Scope::Cluster, false, true), (Scope::Node, true, false)]
        {
            assert_eq!(
                (scope.shows(&disk), scope.shows(&clustered)),
                (own, of_cluster),
                "{scope:?}"
            );
        }
    }
}
