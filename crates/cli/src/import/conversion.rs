//! The state of a conversion.

use super::report::{Report, Weight};
use super::smb_conf::{Parameter, Section, SmbConf};
use super::words::{list, squeezed};

/// An smb.conf that is converted, and the report so far.
pub(super) struct Conversion<'a> {
    pub(super) conf: &'a SmbConf,
    pub(super) global: &'a Section,
    /// Options that may be left out although users could do more without them, without blanks.
    pub(super) accepted: Vec<String>,
    pub(super) report: Report,
}

impl Conversion<'_> {
    /// True for an option, or a module of `vfs objects`, that may be left out.
    pub(super) fn accepts(&self, name: &str) -> bool {
        self.accepted.contains(&squeezed(name))
    }

    /// Reports that nothing can be converted because of a parameter, unless it is accepted.
    pub(super) fn refuse(&mut self, parameter: &Parameter, why: &str) {
        if self.accepts(&parameter.name) {
            self.report.parameter(Weight::LeftOut, "global", parameter, "accepted");
        } else {
            self.report.refused(parameter, why);
        }
    }

    /// True when the share `section`, or with None any share, loads a module.
    pub(super) fn loads(&self, section: Option<&Section>, module: &str) -> bool {
        let loaded = |section: &Section| {
            let value = section.value("vfs objects").or_else(|| self.global.value("vfs objects"));
            let modules = value.map(list).unwrap_or_default();
            modules.iter().any(|word| {
                word.split(':').next().is_some_and(|name| name.eq_ignore_ascii_case(module))
            })
        };
        match section {
            Some(section) => loaded(section),
            None => loaded(self.global) || self.conf.shares().any(loaded),
        }
    }

    /// The domains that the server's own accounts are in, in lower case.
    pub(super) fn domains(&self) -> Vec<String> {
        let named = |name| self.global.value(name).map(str::to_ascii_lowercase);
        let mut domains = vec![named("workgroup").unwrap_or_else(|| String::from("workgroup"))];
        domains.extend(named("netbios name"));
        domains.extend(named("realm"));
        domains.retain(|domain| !domain.is_empty());
        domains
    }
}
