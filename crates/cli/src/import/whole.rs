//! A whole smb.conf to a whole frevo.toml.

use super::conversion::Conversion;
use super::host_facts::HostFacts;
use super::names::NameRules;
use super::report::{Report, Weight};
use super::smb_conf::{Section, Settled, SmbConf};
use super::words::squeezed;
use super::{global, share};

/// Returns the frevo.toml and the report. Options named in `accepted` are left out, whatever
/// they restrict.
pub(super) fn convert(conf: &SmbConf, accepted: &[String], host: &HostFacts) -> (String, Report) {
    let none = Section::global();
    let accepted = accepted.iter().map(|name| squeezed(name)).collect();
    let global = conf.global().unwrap_or(&none);
    let names = NameRules::of(global, host.name.as_deref());
    let report = Report::default();
    let lets_guests_in = false;
    let mut conversion = Conversion { conf, global, accepted, names, host, report, lets_guests_in };
    conversion.lets_guests_in = share::let_guests_in(&conversion);
    let mut toml = String::from(
        "# Converted from an smb.conf by `frevo import`. Keys that are not here have Frevo's\n\
         # defaults: SMB 3.0 and up, signing and encryption required.\n",
    );
    if let Some(place) = conf.late_global() {
        let what = format!(
            "{place}: a [global] after a share is for later shares only; move it to the top, \
             or import the output of `testparm -s` with --testparm"
        );
        conversion.report.note(Weight::Refused, "global", &what);
    }
    for settled in conf.settled() {
        let Settled { section, parameter, why } = settled;
        conversion.report.parameter(Weight::Harmless, section, parameter, why);
    }
    toml.push_str(&global::convert(&mut conversion));
    for section in conf.shares() {
        toml.push_str(&share::convert(section, &mut conversion));
    }
    (toml, conversion.report)
}
