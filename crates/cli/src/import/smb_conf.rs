//! The syntax of smb.conf(5).

use super::options;
use super::words::{squeezed, truth};

/// Files that include each other, at most.
const INCLUDES_DEEP: usize = 8;

/// A file that is included, as far as it is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Included {
    /// Its text.
    Text(String),
    /// It adds nothing, for this reason.
    Nothing(String),
    /// Its text is not known here.
    Unknown,
}

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
    /// Its line, from 1, with the file before it where another one includes that.
    pub(super) place: String,
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
    /// The place of a `[global]` that comes after a share: Samba applies its defaults to later
    /// shares only.
    late_global: Option<String>,
    /// Options that need nothing, with their sections and the reason.
    settled: Vec<Settled>,
}

/// An `include` or `copy` that has been dealt with while the file was read.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) section: String,
    pub(super) parameter: Parameter,
    pub(super) why: String,
}

/// A fault of the syntax.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SyntaxFault {
    /// The file that another one includes; None for the smb.conf itself.
    pub(super) file: Option<String>,
    /// The line, from 1.
    pub(super) line: usize,
    pub(super) what: String,
}

/// A text that is read, and the files that include it.
#[derive(Clone, Copy)]
struct Source<'a> {
    /// The file's name; None for the smb.conf itself.
    file: Option<&'a str>,
    depth: usize,
}

impl Source<'_> {
    fn place(self, line: usize) -> String {
        match self.file {
            None => format!("line {line}"),
            Some(file) => format!("{file} line {line}"),
        }
    }
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
    /// Reads a file that includes no other.
    #[cfg(test)]
    pub(super) fn parse(text: &str) -> Result<Self, SyntaxFault> {
        Self::parse_with(text, &mut |_| Included::Unknown)
    }

    /// Reads a file, and by `read` those that it includes.
    pub(super) fn parse_with(
        text: &str,
        read: &mut dyn FnMut(&str) -> Included,
    ) -> Result<Self, SyntaxFault> {
        // Lines before the first header belong to [global], so it is made before the text is read.
        let mut conf = Self { sections: Vec::new(), late_global: None, settled: Vec::new() };
        conf.take(text, Source { file: None, depth: 0 }, read)?;
        Ok(conf)
    }

    /// Takes over the lines of a file. The section that was open goes on, as in Samba.
    fn take(
        &mut self,
        text: &str,
        source: Source<'_>,
        read: &mut dyn FnMut(&str) -> Included,
    ) -> Result<(), SyntaxFault> {
        for (number, line) in logical_lines(text) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            let fault = |what: String| {
                let file = source.file.map(str::to_owned);
                SyntaxFault { file, line: number, what }
            };
            if let Some(rest) = line.strip_prefix('[') {
                let Some((name, _)) = rest.split_once(']') else {
                    return Err(fault(format!("the section \"{line}\" has no closing bracket")));
                };
                self.open_section(one_blank(name), source.place(number));
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                return Err(fault(format!("\"{line}\" is neither a section nor a parameter")));
            };
            if self.sections.is_empty() {
                self.sections.push(Section::global());
            }
            let parameter = parameter(name, value, source.place(number));
            match &*parameter.name {
                "include" => self.include(parameter, source, read)?,
                _ => self.add(parameter),
            }
        }
        Ok(())
    }

    fn add(&mut self, parameter: Parameter) {
        if let Some(section) = self.sections.last_mut() {
            section.parameters.push(parameter);
        }
    }

    /// Takes over the file that `include` names, if it is known; else the option itself.
    fn include(
        &mut self,
        parameter: Parameter,
        source: Source<'_>,
        read: &mut dyn FnMut(&str) -> Included,
    ) -> Result<(), SyntaxFault> {
        let section = self.sections.last().map_or("global", |section| &*section.name).to_owned();
        let why = match read(&parameter.value) {
            Included::Text(text) if source.depth < INCLUDES_DEEP => {
                let file = parameter.value.clone();
                self.take(&text, Source { file: Some(&file), depth: source.depth + 1 }, read)?;
                String::from("the file is taken over")
            }
            Included::Nothing(why) => why,
            Included::Text(_) | Included::Unknown => {
                self.add(parameter);
                return Ok(());
            }
        };
        self.settled.push(Settled { section, parameter, why });
        Ok(())
    }

    /// A section that comes again goes on; it becomes the last.
    fn open_section(&mut self, name: String, place: String) {
        if name.eq_ignore_ascii_case("global") && self.shares().next().is_some() {
            self.late_global.get_or_insert(place);
        }
        let is_same = |section: &Section| section.name.eq_ignore_ascii_case(&name);
        let section = match self.sections.iter().position(is_same) {
            Some(at) => self.sections.remove(at),
            None => Section { name, parameters: Vec::new() },
        };
        self.sections.push(section);
    }

    /// Takes the option `name` from all sections, since it needs nothing for the reason `why`.
    pub(super) fn settle(&mut self, name: &str, why: &str) {
        for section in &mut self.sections {
            for parameter in section.parameters.extract_if(.., |it| it.name == name) {
                let (section, why) = (section.name.clone(), why.to_owned());
                self.settled.push(Settled { section, parameter, why });
            }
        }
    }

    pub(super) fn global(&self) -> Option<&Section> {
        self.sections.iter().find(|section| is_global(section))
    }

    pub(super) fn shares(&self) -> impl Iterator<Item = &Section> {
        self.sections.iter().filter(|section| !is_global(section))
    }

    /// The place of a `[global]` that comes after a share.
    pub(super) fn late_global(&self) -> Option<&str> {
        self.late_global.as_deref()
    }

    /// Options that were dealt with while the file was read.
    pub(super) fn settled(&self) -> &[Settled] {
        &self.settled
    }

    /// All options, with those of `[global]`.
    pub(super) fn parameters(&self) -> impl Iterator<Item = &Parameter> {
        self.sections.iter().flat_map(|section| &section.parameters)
    }
}

fn is_global(section: &Section) -> bool {
    section.name.eq_ignore_ascii_case("global")
}

/// A parameter under the name that the table has for it.
fn parameter(name: &str, value: &str, place: String) -> Parameter {
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
    Parameter { name, value, shown, place }
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
