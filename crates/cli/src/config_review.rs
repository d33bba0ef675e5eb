//! The part of `frevo check` that a running server makes, too, before a change.

use frevo_config::Config;

use crate::config_checks::{changeable_by_others, secrets_in_shares, unsupported, warnings};
use crate::config_sources::Sources;
use crate::configured::folder;
use crate::configured::identities::identities;
use crate::findings::Finding;
use crate::{accounts, config_contradictions, config_names, state};

/// The findings about a configuration that a server with these rights can look for itself.
pub(crate) fn of_running(config: &Config, sources: &Sources) -> Vec<Finding> {
    let whole = (String::new(), None);
    let mut findings = of_shares(config, sources);
    findings.extend(config_contradictions::find(config, sources));
    match accounts::read(&state::users_file_of(config)) {
        Ok(file) => findings.extend(config_names::find(config, &file, sources)),
        Err(failure) => {
            let (place, text) = (whole.clone(), failure.to_string());
            findings.push(Finding { place, is_fault: true, text });
        }
    }
    let mut faults: Vec<String> = unsupported(config).into_iter().collect();
    faults.extend(secrets_in_shares(config, true));
    faults.extend(changeable_by_others(config, true));
    let finding = |is_fault| {
        let whole = whole.clone();
        move |text| Finding { place: whole.clone(), is_fault, text }
    };
    findings.extend(faults.into_iter().map(finding(true)));
    findings.extend(warnings(config).into_iter().map(finding(false)));
    findings
}

/// Folders and users of the host that shares need.
pub(crate) fn of_shares(config: &Config, sources: &Sources) -> Vec<Finding> {
    let mut findings = Vec::new();
    for share in &config.shares {
        let name = share.name.get_ref();
        if let Err(fault) = folder::open(share) {
            let text = format!("share {name}: {fault}");
            let place = sources.place(&share.path.span());
            findings.push(Finding { place, is_fault: true, text });
        }
        if let Err(why) = identities(share) {
            let key = ["force_group", "force_user", "guest", "run_as"].into_iter();
            let key = key.clone().find(|key| why.starts_with(key)).unwrap_or("run_as");
            let place = sources.place_of_key(&share.name.span(), key);
            findings.push(Finding { place, is_fault: true, text: format!("share {name}: {why}") });
        }
    }
    findings
}
