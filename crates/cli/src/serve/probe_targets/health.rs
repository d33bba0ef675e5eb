//! The judgement of a server that is probed: one probe that is lost is not a failure, and one that comes through is
//! not a return.

/// Probes in a row that fail until a server is told to fail.
const FAILURES: u8 = 2;
/// Probes in a row that are answered until a server that failed is told to answer.
const ANSWERS: u8 = 2;

/// The health of a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Health {
    /// True for a server that answers, false for one that fails, None before the judgement.
    answers: Option<bool>,
    /// Probes in a row that contradict the judgement.
    against: u8,
    /// The reason of the latest failure; empty without one.
    why: String,
}

impl Health {
    /// Counts a probe.
    pub(super) fn note(&mut self, outcome: Result<(), String>) {
        let is_answer = outcome.is_ok();
        if let Err(why) = outcome {
            self.why = why;
        }
        if self.answers == Some(is_answer) {
            self.against = 0;
            return;
        }
        self.against = self.against.saturating_add(1);
        let needed = match (self.answers, is_answer) {
            (_, false) => FAILURES,
            (None, true) => 1,
            (Some(_), true) => ANSWERS,
        };
        if self.against >= needed {
            (self.answers, self.against) = (Some(is_answer), 0);
        }
    }

    /// Returns the judgement. None before it.
    pub(super) const fn answers(&self) -> Option<bool> {
        self.answers
    }

    /// Returns the reason why it fails. None for a server that does not.
    pub(super) fn why(&self) -> Option<&str> {
        (self.answers == Some(false)).then_some(&*self.why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_probes_in_a_row_decide() {
        let mut health = Health::default();
        let mut told = String::new();
        for probe in "ynynnyynnyyn".chars() {
            let failed = Err(String::from("refused"));
            health.note(if probe == 'y' { Ok(()) } else { failed });
            told.push(match health.answers() {
                None => '?',
                Some(true) => 'y',
                Some(false) => 'n',
            });
            assert_eq!(health.why().is_some(), health.answers() == Some(false));
        }
        assert_eq!(told, "yyyynnyynnyy");
    }

    #[test]
    fn the_first_failure_is_no_judgement() {
        let mut health = Health::default();
        health.note(Err(String::from("silent")));
        assert_eq!((health.answers(), health.why()), (None, None));
        health.note(Err(String::from("refused")));
        assert_eq!((health.answers(), health.why()), (Some(false), Some("refused")));
    }
}
