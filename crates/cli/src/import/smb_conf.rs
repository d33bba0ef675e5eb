//! The syntax of smb.conf(5).

/// A parameter as it stands in a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Parameter {
    /// Its name in lower case, with single blanks.
    pub(super) name: String,
    pub(super) value: String,
}

/// `[name]` and what follows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) name: String,
    pub(super) parameters: Vec<Parameter>,
}

/// The sections of an smb.conf.
#[derive(Debug)]
pub(super) struct SmbConf(Vec<Section>);

impl Section {
    /// An empty `[global]`.
    pub(super) fn global() -> Self {
        Self { name: String::from("global"), parameters: Vec::new() }
    }

    /// The value that counts: the last one, under any of its names.
    pub(super) fn value(&self, names: &[&str]) -> Option<&str> {
        let found = self.parameters.iter().rfind(|parameter| names.contains(&&*parameter.name));
        found.map(|parameter| parameter.value.as_str())
    }

    /// A value that is yes or no.
    pub(super) fn truth(&self, names: &[&str]) -> Option<bool> {
        self.value(names).and_then(truth)
    }
}

/// Yes or no, in the words that Samba takes.
pub(super) fn truth(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "yes" | "true" | "on" | "1" => Some(true),
        "no" | "false" | "off" | "0" => Some(false),
        _ => None,
    }
}

impl SmbConf {
    /// Reads a file. An error is the line, from 1, and what is wrong there.
    pub(super) fn parse(text: &str) -> Result<Self, (usize, String)> {
        // What comes before the first header is [global]'s.
        let mut sections: Vec<Section> = Vec::new();
        for (number, line) in logical_lines(text) {
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(rest) = line.strip_prefix('[') {
                let Some((name, _)) = rest.split_once(']') else {
                    return Err((number, format!("the section \"{line}\" has no closing bracket")));
                };
                open_section(&mut sections, one_blank(name));
                continue;
            }
            let Some((name, value)) = line.split_once('=') else {
                return Err((number, format!("\"{line}\" is neither a section nor a parameter")));
            };
            if sections.is_empty() {
                sections.push(Section::global());
            }
            if let Some(section) = sections.last_mut() {
                let name = one_blank(name).to_ascii_lowercase();
                let value = unquoted(value.trim()).to_owned();
                section.parameters.push(Parameter { name, value });
            }
        }
        Ok(Self(sections))
    }

    pub(super) fn global(&self) -> Option<&Section> {
        self.0.iter().find(|section| is_global(section))
    }

    pub(super) fn shares(&self) -> impl Iterator<Item = &Section> {
        self.0.iter().filter(|section| !is_global(section))
    }
}

fn is_global(section: &Section) -> bool {
    section.name.eq_ignore_ascii_case("global")
}

/// A section that comes again goes on; it becomes the last.
fn open_section(sections: &mut Vec<Section>, name: String) {
    let known = sections.iter().position(|section| section.name.eq_ignore_ascii_case(&name));
    let section = match known {
        Some(at) => sections.remove(at),
        None => Section { name, parameters: Vec::new() },
    };
    sections.push(section);
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

/// The words of a list: blanks and commas part them, quotation marks keep them
/// together.
pub(super) fn list(value: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in value.chars() {
        match c {
            '"' => quoted = !quoted,
            c if !quoted && (c.is_whitespace() || matches!(c, ',' | ';')) => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            c => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
