//! The namespaces of a server: DFSNamespaceList of MS-DFSC 3.2.1.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;

use frevo_wire::fscc::fold_name;

use crate::namespace::Namespace;

/// Namespaces by their names without case. A copy shares the namespaces.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Namespaces(BTreeMap<Box<str>, Arc<Namespace>>);

impl Namespaces {
    /// True for a server without a namespace, which is not IsDfsCapable (MS-SMB2 3.3.1.5).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of namespaces.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the namespace of that name, in any case.
    pub fn find(&self, name: &str) -> Option<&Arc<Namespace>> {
        self.0.get(&*fold_name(name))
    }

    /// Returns all namespaces, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Arc<Namespace>> {
        self.0.values()
    }

    /// Adds a namespace, in place of one of that name, which is returned.
    pub fn insert(&mut self, namespace: impl Into<Arc<Namespace>>) -> Option<Arc<Namespace>> {
        let namespace = namespace.into();
        self.0.insert(fold_name(namespace.name()).into(), namespace)
    }

    /// Removes the namespace of that name.
    pub fn remove(&mut self, name: &str) -> Option<Arc<Namespace>> {
        self.0.remove(&*fold_name(name))
    }
}

impl FromIterator<Namespace> for Namespaces {
    fn from_iter<I: IntoIterator<Item = Namespace>>(namespaces: I) -> Self {
        let mut all = Self::default();
        for namespace in namespaces {
            all.insert(namespace);
        }
        all
    }
}
