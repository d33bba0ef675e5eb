//! The report of parameters that could not be converted.

/// Collected lines, in the order of the smb.conf.
#[derive(Debug, Default)]
pub(super) struct Report(Vec<String>);

impl Report {
    /// A parameter that has no equal.
    pub(super) fn dropped(&mut self, section: &str, parameter: &str, why: &str) {
        self.0.push(format!("dropped [{section}] {parameter}: {why}"));
    }

    /// Something to know.
    pub(super) fn note(&mut self, section: &str, what: &str) {
        self.0.push(format!("note [{section}]: {what}"));
    }

    /// A share that is written as a comment.
    pub(super) fn left_out(&mut self, section: &str, why: &str) {
        self.0.push(format!("not shared [{section}]: {why}"));
    }

    pub(super) fn lines(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}
