//! The state of a conversion.

use super::host_facts::HostFacts;
use super::names::NameRules;
use super::report::{Report, Weight};
use super::smb_conf::{Parameter, Section, SmbConf};
use super::words::{list, squeezed, truth};

/// The parameters of a share, with the defaults of `[global]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct ShareParameters<'a> {
    pub(super) section: &'a Section,
    pub(super) global: &'a Section,
}

impl<'a> ShareParameters<'a> {
    /// The parameter in the section or, failing that, in `[global]`.
    pub(super) fn parameter(&self, name: &str) -> Option<&'a Parameter> {
        self.section.parameter(name).or_else(|| self.global.parameter(name))
    }

    pub(super) fn value(&self, name: &str) -> Option<&'a str> {
        self.parameter(name).map(|parameter| parameter.value.as_str())
    }

    pub(super) fn truth(&self, name: &str) -> Option<bool> {
        self.value(name).and_then(truth)
    }
}

/// An smb.conf that is converted, and the report so far.
pub(super) struct Conversion<'a> {
    pub(super) conf: &'a SmbConf,
    pub(super) global: &'a Section,
    /// Options that may be left out although users could do more without them, without blanks.
    pub(super) accepted: Vec<String>,
    pub(super) names: NameRules,
    pub(super) host: &'a HostFacts,
    pub(super) report: Report,
    /// Some share lets guests in.
    pub(super) lets_guests_in: bool,
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

    /// True for an option that neither Frevo nor the host's Samba knows.
    pub(super) fn is_ignored(&self, name: &str) -> bool {
        self.host.ignored.contains(&squeezed(name))
    }
}
