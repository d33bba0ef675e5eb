//! The possible states of a name after a power cut: the last one that was acknowledged as stable,
//! and those that were begun since.

/// The content of the file that has the name; None without one.
pub(crate) type Content = Option<Vec<u8>>;

/// The possible contents of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Possible(Vec<Content>);

impl Default for Possible {
    fn default() -> Self {
        Self(vec![None])
    }
}

impl Possible {
    /// Adds the outcome of a change that has begun.
    pub(crate) fn begin(&mut self, content: Content) {
        if !self.0.contains(&content) {
            self.0.push(content);
        }
    }

    /// Replaces all by what is known to be stable.
    pub(crate) fn settle(&mut self, content: Content) {
        self.0 = vec![content];
    }

    /// Records that the file is there for good. Without one before, it is empty.
    pub(crate) fn exists(&mut self) {
        for content in &mut self.0 {
            content.get_or_insert_default();
        }
        self.0.dedup();
    }

    /// Returns the content, if only one is possible.
    pub(crate) fn known(&self) -> Option<&Content> {
        match &*self.0 {
            [one] => Some(one),
            _ => None,
        }
    }

    /// Compares with what was found.
    pub(crate) fn judge(&self, found: &Content) -> Result<(), String> {
        if self.0.contains(found) {
            return Ok(());
        }
        Err(format!("{} was left, not {}", described(found), {
            let all: Vec<_> = self.0.iter().map(described).collect();
            all.join(" or ")
        }))
    }
}

fn described(content: &Content) -> String {
    content.as_ref().map_or_else(|| "nothing".into(), |bytes| format!("{bytes:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settled_content_is_required_and_begun_content_allowed() {
        let mut state = Possible::default();
        assert_eq!(state.judge(&None), Ok(()));
        assert!(state.judge(&Some(vec![])).is_err());
        state.begin(Some(vec![]));
        assert_eq!(state.known(), None);
        assert!(state.judge(&None).is_ok() && state.judge(&Some(vec![])).is_ok());
        state.exists();
        assert!(state.judge(&None).is_err() && state.judge(&Some(vec![])).is_ok());
        state.begin(Some(vec![1]));
        assert!(state.judge(&Some(vec![])).is_ok() && state.judge(&Some(vec![1])).is_ok());
        state.settle(Some(vec![1]));
        assert!(state.judge(&Some(vec![])).is_err(), "an older state");
        assert!(state.judge(&Some(vec![2])).is_err(), "a state that nobody made");
        state.begin(None);
        state.settle(None);
        assert!(state.judge(&Some(vec![1])).is_err(), "a deleted file is back");
    }
}
