//! The log of a server, with the moments of its lines.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// The lines of a log.
pub(super) struct Log(String);

impl Log {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path);
        text.map(Self).with_context(|| format!("reading {}", path.display()))
    }

    /// The moment of the last line with these words.
    pub(super) fn moment_of(&self, words: &str) -> Option<Duration> {
        let line = self.0.lines().rfind(|line| line.contains(words))?;
        moment(line)
    }
}

/// The time of the day at which a line begins: `2026-01-31T23:59:59.123456Z`.
fn moment(line: &str) -> Option<Duration> {
    let time = line.split_ascii_whitespace().next()?.split_once('T')?.1.strip_suffix('Z')?;
    let mut parts = time.split(':');
    let hours: f64 = parts.next()?.parse().ok()?;
    let minutes: f64 = parts.next()?.parse().ok()?;
    let seconds: f64 = parts.next()?.parse().ok()?;
    Duration::try_from_secs_f64((hours * 60.0 + minutes) * 60.0 + seconds).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_moment() {
        let log = Log("2026-11-29T01:02:03.5Z INFO a: taken\nno time: taken\n".to_owned());
        assert_eq!(log.moment_of("a: taken"), Some(Duration::from_millis(3_723_500)));
        assert_eq!(log.moment_of("no time"), None);
        assert_eq!(log.moment_of("absent"), None);
    }
}
