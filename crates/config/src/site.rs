//! `[[site]]`: networks that are near each other, for the order of targets in referrals.

use frevo_dfs::SiteId;
use frevo_dfs::limits::SITES;
use frevo_net::IpNetwork;
use frevo_wire::fscc::eq_ignore_case;
use serde::Deserialize;
use toml::Spanned;

use super::fault::Fault;
use super::limits::{SITE_NAME_CHARACTERS, SITE_NETWORKS};
use super::parsed;

/// `[[site]]`
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteSection {
    /// Its name, by which targets are said to be in it.
    pub name: Spanned<String>,
    /// The addresses that are in it.
    #[serde(default, deserialize_with = "parsed::list")]
    pub networks: Vec<IpNetwork>,
}

impl SiteSection {
    /// Returns the id of the site of that name, in any case.
    pub(super) fn find(all: &[Self], name: &str) -> Option<SiteId> {
        let is_it = |site: &Self| eq_ignore_case(site.name.get_ref(), name);
        all.iter().position(is_it).and_then(SiteId::of_index)
    }

    /// Faults of all sites.
    pub(super) fn faults(all: &[Self], text: &str) -> Vec<Fault> {
        let (mut faults, mut networks) = (Vec::new(), 0);
        for (index, one) in all.iter().enumerate() {
            let name = one.name.get_ref();
            let mut fault = |what: String| faults.push(Fault::at(text, &one.name.span(), what));
            let is_second = |other: &Self| eq_ignore_case(other.name.get_ref(), name);
            if all.iter().take(index).any(is_second) {
                fault(format!("a second site is called {name}"));
            }
            let length = name.chars().count();
            if length == 0 || length > SITE_NAME_CHARACTERS || name.contains(char::is_control) {
                fault(format!(
                    "the name of a site has 1 to {SITE_NAME_CHARACTERS} characters, none of them for \
                     control"
                ));
            }
            let before = networks;
            networks += one.networks.len();
            if networks > SITE_NETWORKS && before <= SITE_NETWORKS {
                fault(format!("the sites have more than {SITE_NETWORKS} networks"));
            }
            if index == SITES {
                fault(format!("there are more than {SITES} sites"));
            }
        }
        faults
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::SITE_NETWORKS;

    fn faults(text: &str) -> Vec<String> {
        let faults = Config::parse(text).map_or_else(|faults| faults, |_| Vec::new());
        faults.iter().map(ToString::to_string).collect()
    }

    const BERLIN: &str =
        "[[site]]\nname = \"berlin\"\nnetworks = [\"10.1.0.0/16\", \"2001:db8::/32\"]\n";

    fn linked(targets: &str) -> String {
        format!(
            "[[namespace]]\nname = \"files\"\n[[namespace.link]]\npath = 'a'\ntargets = {targets}\n"
        )
    }

    #[test]
    fn targets_are_in_the_sites_of_their_names() {
        let targets = r"['\\one\a', { path = '\\two\a', site = 'Berlin' }, { path = '\\x\a', site = 'oslo' }]";
        let text = format!("{}{BERLIN}[[site]]\nname = \"Oslo\"\n", linked(targets));
        let config = Config::parse(&text).unwrap();
        assert_eq!(config.sites[0].networks.len(), 2);
        let namespace = config.namespaces[0].namespace(&config.shares).unwrap();
        let link = namespace.link("a").unwrap();
        let sites: Vec<_> =
            link.targets().iter().map(|target| target.site.map(|site| site.index())).collect();
        assert_eq!(sites, [None, Some(0), Some(1)]);
    }

    #[test]
    fn faults_of_sites_are_told() {
        let many = vec!["\"10.0.0.0/8\""; SITE_NETWORKS + 1].join(", ");
        let unknown = linked(r"[{ path = '\\one\a', site = 'berln' }]");
        for (text, what) in [
            (format!("{BERLIN}{BERLIN}"), "line 5: a second site is called berlin"),
            (String::from("[[site]]\nname = \"\"\n"), "line 2: the name of a site has 1 to 64"),
            (
                String::from("[[site]]\nname = \"a\"\nnetworks = [\"10.1.0.1/16\"]\n"),
                "line 3: \"10.1.0.1/16\" has bits set",
            ),
            (
                format!("[[site]]\nname = \"a\"\nnetworks = [{many}]\n"),
                "line 2: the sites have more than 1000 networks",
            ),
            (
                format!("{unknown}{BERLIN}"),
                "line 5: namespace files: there is no site berln; did you mean berlin?",
            ),
            (unknown, "line 5: namespace files: there is no site berln"),
        ] {
            let found = faults(&text);
            assert!(found.len() == 1 && found[0].starts_with(what), "{text}: {found:?}");
        }
    }
}
