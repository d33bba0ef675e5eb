//! The report of parameters that could not be converted.

/// Collected lines, in the order of the smb.conf.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<String>);

impl Report {
    /// A parameter that has no equal.
    pub(super) fn dropped(&mut self, section: &str, parameter: &str, why: &str) {
        self.0.push(format!("dropped [{section}] {parameter}: {why}"));
    }

    /// A note about a default that differs.
    pub(super) fn note(&mut self, section: &str, what: &str) {
        self.0.push(format!("note [{section}]: {what}"));
    }

    /// A share that is not served: it is written as a comment, or not at all.
    pub(super) fn left_out(&mut self, section: &str, why: &str) {
        self.0.push(format!("not shared [{section}]: {why}"));
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
