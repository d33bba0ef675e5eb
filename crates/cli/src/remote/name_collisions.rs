//! Which names the copies of a command have so far: none takes another's place.

use std::collections::HashSet;

use frevo_wire::fscc::upcase_name;

use crate::exit::{Exit, Failure};

/// Whether names that differ in case alone are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Case {
    /// As most servers have it.
    Same,
    /// As this machine has it.
    Differs,
}

/// The names that were taken.
#[derive(Debug)]
pub(crate) struct TakenNames {
    case: Case,
    names: HashSet<String>,
}

impl TakenNames {
    pub(crate) fn new(case: Case) -> Self {
        Self { case, names: HashSet::new() }
    }

    /// Takes `name` for what is copied or moved from `from`.
    pub(crate) fn take(&mut self, name: &str, from: impl std::fmt::Display) -> Result<(), Failure> {
        let key = match self.case {
            Case::Same => upcase_name(name),
            Case::Differs => name.to_owned(),
        };
        if self.names.insert(key) {
            return Ok(());
        }
        let case = if self.case == Case::Same { " (ignoring case)" } else { "" };
        let text =
            format!("skipped {from}: another source also maps to {name}{case}; rename one of them");
        Err(Failure::new(Exit::Failed, text).of("copy", from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_taken_once() {
        let mut there = TakenNames::new(Case::Same);
        assert!(there.take("a/Bé", "x").is_ok() && there.take("a/c", "x").is_ok());
        let refused = there.take("A/bÉ", "./y").unwrap_err();
        assert!(refused.message.starts_with("skipped ./y"), "{refused}");
        let mut here = TakenNames::new(Case::Differs);
        assert!(here.take("a", "x").is_ok() && here.take("A", "x").is_ok());
        assert!(here.take("a", "x").is_err());
        // As Windows has it, which keeps them apart.
        for (one, other) in [("ı", "i"), ("ſ", "s"), ("straße", "strasse")] {
            assert!(there.take(one, "x").is_ok() && there.take(other, "x").is_ok(), "{other}");
        }
    }
}
