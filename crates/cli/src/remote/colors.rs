//! Colours of names in listings, as `LS_COLORS` of GNU ls gives them.

use std::io::IsTerminal;

use clap::ValueEnum;
use frevo_client::Metadata;

use super::walk::{self, Kind};

/// When names are coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum When {
    /// On a terminal
    Auto,
    /// Always
    Always,
    /// Never
    Never,
}

/// The colours of GNU ls without `LS_COLORS`.
const DEFAULT: &str = "di=01;34:ln=01;36";

/// The colours of kinds and of names by their ends.
#[derive(Debug, Default)]
pub(crate) struct Colors {
    directory: Option<String>,
    link: Option<String>,
    /// The ends of names in lower case, with their colours; the last one that fits counts.
    ends: Vec<(String, String)>,
    /// True when control characters of a name have to be hidden from a terminal.
    is_terminal: bool,
}

impl Colors {
    /// The colours of the environment, if names are coloured.
    pub(crate) fn new(when: When) -> Self {
        let is_terminal = std::io::stdout().is_terminal();
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let is_on = match when {
            When::Auto => is_terminal && !is_plain,
            When::Always => true,
            When::Never => false,
        };
        let text = std::env::var("LS_COLORS").unwrap_or_else(|_| DEFAULT.into());
        let colors = if is_on { Self::parse(&text) } else { Self::default() };
        Self { is_terminal, ..colors }
    }

    fn parse(text: &str) -> Self {
        let mut colors = Self::default();
        for (what, color) in text.split(':').filter_map(|one| one.split_once('=')) {
            // A colour consists only of digits and semicolons, because any other text could be a
            // harmful escape sequence.
            if color.is_empty() || !color.chars().all(|one| one.is_ascii_digit() || one == ';') {
                continue;
            }
            let color = color.to_owned();
            match (what, what.strip_prefix('*')) {
                ("di", _) => colors.directory = Some(color),
                ("ln", _) => colors.link = Some(color),
                (_, Some(end)) => colors.ends.push((end.to_lowercase(), color)),
                _ => {}
            }
        }
        colors
    }

    /// The name in its colour. On a terminal control characters of the name become `?`.
    pub(crate) fn paint(&self, name: &str, metadata: &Metadata) -> String {
        let color = match walk::kind(metadata) {
            Kind::Directory => self.directory.as_ref(),
            Kind::Other => self.link.as_ref(),
            Kind::File => {
                let name = name.to_lowercase();
                let fits = self.ends.iter().rev().find(|(end, _)| name.ends_with(end));
                fits.map(|(_, color)| color)
            }
        };
        let shown =
            if self.is_terminal { crate::printable::printable(name) } else { name.to_owned() };
        match color {
            Some(color) => format!("\u{1b}[{color}m{shown}\u{1b}[0m"),
            None => shown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_client::FileAttributes;

    #[test]
    fn names_have_the_colours_of_ls() {
        let colors = Colors::parse("rs=0:di=01;34:ln=target:*.jpg=35:*.TAR=31:*.x=\u{1b}[2J");
        let file = Metadata::default();
        let directory = file.with_attributes(FileAttributes::DIRECTORY);
        assert_eq!(colors.paint("a.JPG", &file), "\u{1b}[35ma.JPG\u{1b}[0m");
        assert_eq!(colors.paint("b.tar", &file), "\u{1b}[31mb.tar\u{1b}[0m");
        assert_eq!(colors.paint("d", &directory), "\u{1b}[01;34md\u{1b}[0m");
        assert_eq!(
            (colors.paint("a.x", &file), colors.paint("a", &file)),
            ("a.x".into(), "a".into())
        );
        assert_eq!(Colors::default().paint("d", &directory), "d");
    }
}
