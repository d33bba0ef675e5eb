//! The syntax of smb.conf(5).

use super::options;
use super::words::{squeezed, truth};

/// A parameter as it stands in a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    /// The name by which the table of options knows it; for others the name in lower case,
    /// without the blanks that Samba ignores.
    pub(super) name: String,
    /// Its value; the opposite of what stands in the file for an opposite name (`writeable`).
    pub(super) value: String,
    /// Name and value as they stand in the file.
    pub(super) shown: String,
    /// Its line in the file, from 1.
    pub(super) line: usize,
}

/// `[name]` and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) parameters: Vec<Parameter>,
}

/// The sections of an smb.conf.
#[derive(Debug)]
pub(super) struct SmbConf {
    sections: Vec<Section>,
    /// The line of a `[global]` that comes after a share: Samba applies its defaults to later
    /// shares only.
    late_global: Option<usize>,
}

impl Section {
    /// An empty `[global]`.
    pub(super) fn global() -> Self {
        Self { name: String::from("global"), parameters: Vec::new() }
    }

    /// The parameter that counts: the last one of the name.
    pub(super) fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().rfind(|parameter| parameter.name == name)
    }

    /// The value that counts.
    pub(super) fn value(&self, name: &str) -> Option<&str> {
        self.parameter(name).map(|parameter| parameter.value.as_str())
    }

    /// A value that is yes or no.
    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        self.value(name).and_then(truth)
    }
}

impl SmbConf {
    /// Reads a file. An error is the line, from 1, and what is wrong there.
    pub(super) fn parse(text: &str) -> Result<Self, (usize, String)> {
        // What comes before the first header is [global]'s.
        let mut conf = Self { sections: Vec::new(), late_global: None };
        for (number, line) in logical_lines(text) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let Some((name, _)) = rest.split_once(']') else {
                    return Err((number, format!("the section \"{line}\" has no closing bracket")));
                };
                conf.open_section(one_blank(name), number);
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                return Err((number, format!("\"{line}\" is neither a section nor a parameter")));
            };
            if conf.sections.is_empty() {
                conf.sections.push(Section::global());
            }
            if let Some(section) = conf.sections.last_mut() {
                section.parameters.push(parameter(name, value, number));
            }
        }
        Ok(conf)
    }

    /// A section that comes again goes on; it becomes the last.
    fn open_section(&mut self, name: String, line: usize) {
        if name.eq_ignore_ascii_case("global") && self.shares().next().is_some() {
            self.late_global.get_or_insert(line);
        }
        let is_same = |section: &Section| section.name.eq_ignore_ascii_case(&name);
        let section = match self.sections.iter().position(is_same) {
            Some(at) => self.sections.remove(at),
            None => Section { name, parameters: Vec::new() },
        };
        self.sections.push(section);
    }

    pub(super) fn global(&self) -> Option<&Section> {
        self.sections.iter().find(|section| is_global(section))
    }

    pub(super) fn shares(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| !is_global(section))
    }

    /// The line of a `[global]` that comes after a share.
    pub(super) const fn late_global(&self) -> Option<usize> {
        self.late_global
    }
}

fn is_global(section: &Section) -> bool {
    section.name.eq_ignore_ascii_case("global")
}

/// A parameter under the name that the table has for it.
fn parameter(name: &str, value: &str, line: usize) -> Parameter {
    let value = unquoted(value.trim());
    let shown = format!("{} = {value}", one_blank(name));
    let squeezed = squeezed(name);
    let (name, is_opposite) = match options::canonical(&squeezed) {
        Some((name, is_opposite)) => (name.to_owned(), is_opposite),
        None if squeezed.contains(':') => (squeezed, false),
        None => (one_blank(name).to_ascii_lowercase(), false),
    };
    let value = match truth(value).filter(|_| is_opposite) {
        Some(yes) => if yes { "no" } else { "yes" }.to_owned(),
        None => value.to_owned(),
    };
    Parameter { name, value, shown, line }
}

/// Lines with those that a backslash continues joined, and the number of the
/// first of each.
fn logical_lines(text: &str) -> Vec<(usize, String)> {
    let mut lines: Vec<(usize, String)> = Vec::new();
    let mut continues = false;
    for (index, line) in text.lines().enumerate() {
        let (line, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        match lines.last_mut() {
            Some((_, last)) if continues => last.push_str(line),
            _ => lines.push((index + 1, line.to_owned())),
        }
        continues = goes_on;
    }
    lines
}

fn one_blank(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unquoted(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}
