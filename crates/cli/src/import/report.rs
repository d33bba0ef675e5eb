//! The report of a conversion, sorted by weight.

use super::options::Effect;
use super::smb_conf::Parameter;
use crate::printable::printable;

/// The weight of a line of the report, heaviest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// Nothing can be converted as long as the line holds.
    Refused,
    /// A share is not served.
    NotShared,
    /// Users can do less than before.
    Stricter,
    /// A function is missing; nobody has more rights than before.
    LeftOut,
    /// Nobody notices a difference.
    Harmless,
}

impl Weight {
    const ALL: [Self; 5] =
        [Self::Refused, Self::NotShared, Self::Stricter, Self::LeftOut, Self::Harmless];

    /// The weight of an option with this effect; None for one that is converted.
    pub(super) const fn of(effect: Effect) -> Option<Self> {
        match effect {
            Effect::Converted => None,
            Effect::Harmless => Some(Self::Harmless),
            Effect::LeftOut => Some(Self::LeftOut),
            Effect::Stricter => Some(Self::Stricter),
            Effect::Opens => Some(Self::NotShared),
        }
    }

    /// The word for it in JSON.
    const fn word(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::NotShared => "not_shared",
            Self::Stricter => "stricter",
            Self::LeftOut => "left_out",
            Self::Harmless => "harmless",
        }
    }

    const fn title(self) -> &'static str {
        match self {
            Self::Refused => "Not converted, because users could do more than before",
            Self::NotShared => "Not shared (a comment in the frevo.toml)",
            Self::Stricter => "Stricter than before",
            Self::LeftOut => "Left out",
            Self::Harmless => "Without importance",
        }
    }
}

/// The lines of the report.
#[derive(Debug, Default)]
pub(super) struct Report {
    lines: Vec<(Weight, String)>,
    /// The options of `[global]` that prevent the conversion of the whole file.
    refused: Vec<String>,
}

impl Report {
    /// A parameter that is not taken over as it is.
    pub(super) fn parameter(
        &mut self,
        weight: Weight,
        section: &str,
        parameter: &Parameter,
        why: &str,
    ) {
        let Parameter { shown, place, .. } = parameter;
        self.push(weight, &format!("[{section}] {place}: {shown}: {why}"));
    }

    /// Reports an option of `[global]` that prevents the conversion of the whole file.
    pub(super) fn refused(&mut self, parameter: &Parameter, why: &str) {
        self.parameter(Weight::Refused, "global", parameter, why);
        let option = parameter.shown.split('=').next().unwrap_or_default().trim();
        self.refused.push(printable(option));
    }

    /// The flags that would leave the refused options out.
    pub(super) fn accepting(&self) -> String {
        let flag = |option: &String| format!("--accept '{option}'");
        self.refused.iter().map(flag).collect::<Vec<_>>().join(" ")
    }

    /// A difference that no parameter causes alone.
    pub(super) fn note(&mut self, weight: Weight, section: &str, what: &str) {
        self.push(weight, &format!("[{section}] {what}"));
    }

    /// Adds a line. Names of the smb.conf are not obeyed by the terminal that shows the report, now
    /// or later.
    fn push(&mut self, weight: Weight, line: &str) {
        let line = printable(&line.replace(['\n', '\r'], " "));
        if !self.lines.iter().any(|(known, text)| *known == weight && *text == line) {
            self.lines.push((weight, line));
        }
    }

    /// True when the conversion must not be used.
    pub(super) fn is_refused(&self) -> bool {
        self.lines.iter().any(|(weight, _)| *weight == Weight::Refused)
    }

    /// The lines of one weight, in the order of the smb.conf.
    pub(super) fn of(&self, weight: Weight) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(move |(known, _)| *known == weight).map(|(_, line)| line.as_str())
    }

    /// The whole report as JSON objects, heaviest lines first.
    pub(super) fn objects(&self) -> Vec<serde_json::Value> {
        let lines = |weight: Weight| self.of(weight).map(move |line| (weight.word(), line));
        let all = Weight::ALL.into_iter().flat_map(lines);
        all.map(|(word, line)| serde_json::json!({ "weight": word, "line": line })).collect()
    }

    /// The whole report: a title for each weight with its lines below.
    pub(super) fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for weight in Weight::ALL {
            let found: Vec<&str> = self.of(weight).collect();
            if !found.is_empty() {
                lines.push(format!("{} ({}):", weight.title(), found.len()));
                lines.extend(found.iter().map(|line| format!("  {line}")));
            }
        }
        lines
    }
}
