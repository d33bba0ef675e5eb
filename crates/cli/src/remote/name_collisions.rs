//! Collisions of names: two sources of one command that would get the same target.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use frevo_wire::fscc::upcase_name;

use super::walk::Kind;
use crate::exit::{Exit, Failure};

/// The comparison of names that differ in case only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// They are equal, as on most servers.
    Same,
    /// They differ, as on this machine.
    Differs,
}

/// The target names that a command has used so far.
#[derive(Debug)]
pub(crate) struct TakenNames {
    case: Case,
    /// True for a file. A directory can be the target of several sources.
    names: HashMap<String, bool>,
}

impl TakenNames {
    pub(crate) fn new(case: Case) -> Self {
        Self { case, names: HashMap::new() }
    }

    /// Takes the target `name` for the source `from`.
    ///
    /// # Errors
    /// Another source has that target, and one of both is not a directory.
    pub(crate) fn take(
        &mut self,
        name: &str,
        kind: Kind,
        from: impl std::fmt::Display,
    ) -> Result<(), Failure> {
        let key = match self.case {
            Case::Same => upcase_name(name),
            Case::Differs => name.to_owned(),
        };
        let is_file = kind != Kind::Directory;
        match self.names.entry(key) {
            Entry::Vacant(free) => {
                free.insert(is_file);
                return Ok(());
            }
            Entry::Occupied(other) if !is_file && !other.get() => return Ok(()),
            Entry::Occupied(_) => {}
        }
        let case = if self.case == Case::Same { " (ignoring case)" } else { "" };
        let text = format!(
            "skipped {from}: another file is copied to the same name{case}, {name}; rename one of them"
        );
        Err(Failure::new(Exit::Failed, text).of("copy", from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once() {
        let mut there = TakenNames::new(Case::Same);
        assert!(
            there.take("a/Bé", Kind::File, "x").is_ok()
                && there.take("a/c", Kind::File, "x").is_ok()
        );
        let refused = there.take("A/bÉ", Kind::File, "./y").unwrap_err();
        assert!(refused.message.starts_with("skipped ./y"), "{refused}");
        let mut here = TakenNames::new(Case::Differs);
        assert!(here.take("a", Kind::File, "x").is_ok() && here.take("A", Kind::File, "x").is_ok());
        assert!(here.take("a", Kind::Directory, "x").is_err());
        // Windows treats the two names of each pair as different, so the second one does not
        // collide with the first.
        for (one, other) in [("ı", "i"), ("ſ", "s"), ("straße", "strasse")] {
            assert!(
                there.take(one, Kind::File, "x").is_ok()
                    && there.take(other, Kind::File, "x").is_ok(),
                "{other}"
            );
        }
    }
}
