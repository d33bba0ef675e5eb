//! `[[namespace]]` and `[[namespace.link]]`: the namespaces of DFS that the server is the root of.

use std::ops::Range;

use frevo_dfs::{BadLink, Link, Namespace, Ordering, PriorityClass, Root, SiteId, State, Target};
use frevo_wire::fscc::fold_name;
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::fault::Fault;
use super::limits::{PROBE_SECONDS_MAX, PROBE_SECONDS_MIN, REFERRAL_TTL_SECONDS_MAX};
use super::many_links::moved;
use super::names::{ShareName, Who};
use super::nearest::nearest;
use super::share::{ShareSection, USER};
use super::site::SiteSection;
use super::values::{OrderingChoice, PriorityChoice, StateChoice};

/// Shares of domain controllers, whose referrals are of another kind (MS-DFSC 3.2.5.4).
const SYSVOL: [&str; 2] = ["SYSVOL", "NETLOGON"];

/// `[[namespace]]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSection {
    /// Its name. Clients see the root as a share of this name.
    pub name: Spanned<ShareName>,
    /// Text that clients see beside the name.
    #[serde(default)]
    pub comment: String,
    /// "offline" for a namespace that nobody can use.
    #[serde(default)]
    pub state: Option<StateChoice>,
    /// Seconds for which clients may use a referral for the root.
    #[serde(default)]
    pub ttl: Option<u32>,
    /// The order of targets of all links that say nothing else.
    #[serde(default)]
    pub ordering: Option<OrderingChoice>,
    /// Clients go back to a better target when it works again.
    #[serde(default)]
    pub failback: bool,
    /// Seconds between two probes of the server of a target; the servers are not probed without it.
    #[serde(default)]
    pub probe_seconds: Option<u32>,
    /// Users that may connect to a root that is no share; empty: every user.
    #[serde(default)]
    pub allow: Vec<Who>,
    /// Each `[[namespace.link]]`
    #[serde(default, rename = "link")]
    pub links: Vec<LinkSection>,
    /// True for one that was made over the network, and not by whoever writes the configuration.
    #[serde(skip)]
    pub is_networked: bool,
}

/// `[[namespace.link]]`
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkSection {
    /// Its path below the root.
    pub path: Spanned<String>,
    /// The shares that it leads to.
    pub targets: Spanned<Vec<TargetSection>>,
    /// Text for administrators.
    #[serde(default)]
    pub comment: String,
    /// "offline" for a link that leads nowhere.
    #[serde(default)]
    pub state: Option<StateChoice>,
    /// Seconds for which clients may use a referral.
    #[serde(default)]
    pub ttl: Option<u32>,
    /// The order of its targets.
    #[serde(default)]
    pub ordering: Option<OrderingChoice>,
    /// Clients go back to a better target when it works again.
    #[serde(default)]
    pub failback: bool,
    /// Its targets are roots of other namespaces.
    #[serde(default)]
    pub interlink: bool,
}

/// A target: `"\\\\server\\share"`, or a table with keys of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetSection {
    /// `\\server\share`, possibly with a folder behind it.
    pub path: String,
    /// "offline" for a target that is in no referral.
    pub state: Option<StateChoice>,
    /// Its priority class.
    pub priority: Option<PriorityChoice>,
    /// Its rank among the targets of its class.
    pub rank: Option<u8>,
    /// The name of its site.
    pub site: Option<Box<str>>,
    /// The site of that name.
    site_id: Option<SiteId>,
}

/// The table of a target.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TargetTable {
    path: String,
    state: Option<StateChoice>,
    priority: Option<PriorityChoice>,
    rank: Option<u8>,
    site: Option<Box<str>>,
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "expected '\\\\server\\share', or a table with path, state, priority, rank and site"
)]
enum Written {
    Path(String),
    Table(TargetTable),
}

impl<'de> Deserialize<'de> for TargetSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Written::deserialize(deserializer)? {
            Written::Path(path) => {
                Self { path, state: None, priority: None, rank: None, site: None, site_id: None }
            }
            Written::Table(TargetTable { path, state, priority, rank, site }) => {
                Self { path, state, priority, rank, site, site_id: None }
            }
        })
    }
}

impl TargetSection {
    fn target(&self) -> Result<Target, BadLink> {
        let mut target = Target::new(&self.path)?;
        target.state = state(self.state);
        target.rank = self.rank.unwrap_or_default();
        target.site = self.site_id;
        target.class = match self.priority {
            Some(PriorityChoice::GlobalHigh) => PriorityClass::GlobalHigh,
            Some(PriorityChoice::High) => PriorityClass::SiteCostHigh,
            None | Some(PriorityChoice::Normal) => PriorityClass::SiteCostNormal,
            Some(PriorityChoice::Low) => PriorityClass::SiteCostLow,
            Some(PriorityChoice::GlobalLow) => PriorityClass::GlobalLow,
        };
        Ok(target)
    }
}

impl LinkSection {
    /// A link of a piece of a text that begins at `start`, with its places in the whole text.
    pub(super) fn moved(self, start: usize) -> Self {
        let Self { path, targets, .. } = self;
        Self { path: moved(path, start), targets: moved(targets, start), ..self }
    }

    fn link(&self) -> Result<Link, BadLink> {
        let targets = self.targets.get_ref().iter().map(TargetSection::target);
        let mut link = Link::new(self.path.get_ref(), targets.collect::<Result<_, _>>()?)?;
        link.comment = self.comment.as_str().into();
        link.state = state(self.state);
        link.ttl_s = self.ttl;
        link.ordering = self.ordering.map(ordering);
        link.failback = self.failback;
        link.is_interlink = self.interlink;
        Ok(link)
    }

    /// The place of a fault in the section.
    fn span_of(&self, fault: &BadLink) -> Range<usize> {
        match fault {
            BadLink::Target(_)
            | BadLink::NoTarget(_)
            | BadLink::Targets(_)
            | BadLink::TargetTwice(_)
            | BadLink::Rank(_) => self.targets.span(),
            _ => self.path.span(),
        }
    }
}

impl NamespaceSection {
    /// Returns the namespace, whose root is a share of `shares` if one has its name.
    ///
    /// # Errors
    /// For links that cannot be together. A configuration without faults has none.
    pub fn namespace(&self, shares: &[ShareSection]) -> Result<Namespace, BadLink> {
        let root = if self.share(shares).is_some() { Root::Share } else { Root::Own };
        let mut namespace = Namespace::new(self.name.get_ref().as_str(), root);
        namespace.comment = self.comment.as_str().into();
        namespace.state = state(self.state);
        namespace.ttl_s = self.ttl;
        namespace.ordering = self.ordering.map(ordering).unwrap_or_default();
        namespace.failback = self.failback;
        let links = self.links.iter().map(LinkSection::link);
        namespace.with_links(links.collect::<Result<_, _>>()?)
    }

    /// Returns the share that the namespace's root is. None for a root of its own.
    pub fn share<'a>(&self, shares: &'a [ShareSection]) -> Option<&'a ShareSection> {
        shares.iter().find(|share| share.name.get_ref().is_same(self.name.get_ref()))
    }

    /// Tells the targets of all links the sites of their names.
    pub(super) fn find_sites(all: &mut [Self], sites: &[SiteSection]) {
        let links = all.iter_mut().flat_map(|namespace| &mut namespace.links);
        for target in links.flat_map(|link| link.targets.get_mut()) {
            let site = target.site.as_deref();
            target.site_id = site.and_then(|site| SiteSection::find(sites, site));
        }
    }

    /// Faults of all namespaces.
    pub(super) fn faults(
        all: &[Self],
        shares: &[ShareSection],
        sites: &[SiteSection],
        text: &str,
    ) -> Vec<Fault> {
        let mut faults = Vec::new();
        if let Some(over) = all.get(frevo_dfs::limits::NAMESPACES) {
            let what = format!("there are more than {} namespaces", frevo_dfs::limits::NAMESPACES);
            faults.push(Fault::at(text, &over.name.span(), what));
        }
        for (index, one) in all.iter().enumerate() {
            let name = one.name.get_ref();
            let fault = |what: String| Fault::at(text, &one.name.span(), what);
            if all.iter().take(index).any(|other| other.name.get_ref().is_same(name)) {
                faults.push(fault(format!("a second namespace is called {name}")));
            }
            if SYSVOL.iter().any(|taken| taken.eq_ignore_ascii_case(name.as_str())) {
                let what = format!("the namespace name {name} is reserved for domain controllers");
                faults.push(fault(what).hint("choose another name"));
            }
            if name.as_str() == USER {
                faults.push(fault(String::from("a namespace cannot be called {user}")));
            }
            faults.extend(one.own_faults(shares, text));
            faults.extend(one.faults_of_sites(sites, text));
        }
        faults
    }

    fn own_faults(&self, shares: &[ShareSection], text: &str) -> Vec<Fault> {
        let name = self.name.get_ref();
        let at_name = |what: String| Fault::at(text, &self.name.span(), what);
        let mut faults = Vec::new();
        if let Some(share) = self.share(shares) {
            if !self.allow.is_empty() || !self.comment.is_empty() {
                let what = format!(
                    "the namespace {name} is the share {name}, which has allow and comment itself"
                );
                faults.push(at_name(what).hint("write both keys in the [[share]]"));
            }
            if share.user_part().is_some() {
                let what = format!(
                    "the namespace {name} is the share {name}, which has a folder for each user"
                );
                faults.push(at_name(what));
            }
        }
        let ttls = self.links.iter().map(|link| link.ttl).chain([self.ttl]);
        if ttls.flatten().any(|ttl| ttl > REFERRAL_TTL_SECONDS_MAX) {
            let what =
                format!("namespace {name}: ttl is at most {REFERRAL_TTL_SECONDS_MAX} seconds");
            faults.push(at_name(what));
        }
        let bounds = PROBE_SECONDS_MIN..=PROBE_SECONDS_MAX;
        if self.probe_seconds.is_some_and(|seconds| !bounds.contains(&seconds)) {
            let what = format!(
                "namespace {name}: probe_seconds must be {PROBE_SECONDS_MIN} to {PROBE_SECONDS_MAX}"
            );
            faults.push(at_name(what));
        }
        let mut good = Vec::new();
        for section in &self.links {
            match section.link() {
                Ok(link) => good.push(link),
                Err(fault) => {
                    let what = format!("namespace {name}: {fault}");
                    faults.push(Fault::at(text, &section.span_of(&fault), what));
                }
            }
        }
        // Two links are compared only when each is good by itself.
        if let Err(fault) = Namespace::new(name.as_str(), Root::Own).with_links(good) {
            let span = self.place_of(&fault).unwrap_or_else(|| self.name.span());
            faults.push(Fault::at(text, &span, format!("namespace {name}: {fault}")));
        }
        faults
    }

    /// Targets of sites that are not there.
    fn faults_of_sites(&self, sites: &[SiteSection], text: &str) -> Vec<Fault> {
        let mut faults = Vec::new();
        for link in &self.links {
            let lost = |target: &&TargetSection| target.site_id.is_none() && target.site.is_some();
            let lost = link.targets.get_ref().iter().find(lost);
            let Some(site) = lost.and_then(|target| target.site.as_deref()) else { continue };
            let near = nearest(site, sites.iter().map(|site| site.name.get_ref().as_str()));
            let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
            let what = format!("namespace {}: there is no site {site}{near}", self.name.get_ref());
            faults.push(Fault::at(text, &link.targets.span(), what));
        }
        faults
    }

    /// The section of a link that does not go with another.
    fn place_of(&self, fault: &BadLink) -> Option<Range<usize>> {
        let path = match fault {
            BadLink::Twice(path) | BadLink::Comment(path) => path,
            BadLink::Inside { link, .. } => link,
            BadLink::Rank(rank) => {
                let has_it = |link: &&LinkSection| {
                    link.targets.get_ref().iter().any(|target| target.rank == Some(*rank))
                };
                return self.links.iter().find(has_it).map(|link| link.targets.span());
            }
            _ => return None,
        };
        let is_it = |link: &&LinkSection| {
            fold_name(link.path.get_ref().trim_matches('\\')) == fold_name(path)
        };
        self.links.iter().rfind(is_it).map(|link| link.path.span())
    }
}

fn state(choice: Option<StateChoice>) -> State {
    match choice {
        None | Some(StateChoice::Online) => State::Online,
        Some(StateChoice::Offline) => State::Offline,
    }
}

const fn ordering(choice: OrderingChoice) -> Ordering {
    match choice {
        OrderingChoice::Site => Ordering::Site,
        OrderingChoice::Priority => Ordering::Priority,
        OrderingChoice::Random => Ordering::Random,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let faults = Config::parse(text).map_or_else(|faults| faults, |_| Vec::new());
        faults.iter().map(ToString::to_string).collect()
    }

    fn link(path: &str, targets: &str) -> String {
        format!("[[namespace.link]]\npath = '{path}'\ntargets = {targets}\n")
    }

    const FILES: &str = "[[namespace]]\nname = \"files\"\n";
    const DATA: &str = "['\\\\one\\data']";

    #[test]
    fn sections_become_namespaces() {
        let text = format!(
            "[[share]]\nname = \"Files\"\npath = \"/srv\"\n{FILES}ttl = 60\nfailback = true\n{}{}\
             ordering = \"random\"\nttl = 90\ncomment = \"all\"\nstate = \"offline\"\ninterlink = true\n\
             [[namespace]]\nname = \"other\"\nallow = [\"ann\"]\nordering = \"priority\"\n",
            link("dir\\a", DATA),
            link(
                "dir\\b",
                "[{ path = '\\\\one\\data', state = \"offline\", priority = \"global-low\", rank = 31 }, '\\\\two\\x\\y']"
            ),
        );
        let config = Config::parse(&text).unwrap_or_else(|faults| panic!("{faults:?}"));
        let of = |at: usize| config.namespaces[at].namespace(&config.shares).unwrap();
        let (files, other) = (of(0), of(1));
        assert_eq!((files.root, files.ttl_s, files.failback), (Root::Share, Some(60), true));
        assert_eq!((other.root, other.ordering), (Root::Own, Ordering::Priority));
        let b = files.link("DIR\\B").unwrap();
        assert_eq!(
            (b.ordering, b.ttl_s, b.state),
            (Some(Ordering::Random), Some(90), State::Offline)
        );
        assert_eq!((&*b.comment, b.is_interlink, b.failback), ("all", true, false));
        let [one, two] = b.targets() else { panic!("{b:?}") };
        assert_eq!(
            (one.state, one.class, one.rank),
            (State::Offline, PriorityClass::GlobalLow, 31)
        );
        assert_eq!((two.path(), two.class), ("\\two\\x\\y", PriorityClass::SiteCostNormal));
        assert_eq!(files.links().len(), 2);
    }

    #[test]
    fn bad_sections_are_told_with_their_places() {
        let files = |rest: &str| faults(&format!("{FILES}{rest}"));
        for (text, line, what) in [
            (link("a", "['one\\data']"), 5, "the target one\\data is not \\\\server\\share"),
            (link("a", "['\\\\one']"), 5, "is not \\\\server\\share"),
            (link("a", "[]"), 5, "the link a has no target"),
            (link("a", "[{ path = '\\\\one\\d', rank = 32 }]"), 5, "the rank 32 is above 31"),
            (link("..\\a", DATA), 4, "is not the path of a link"),
            (link("a", DATA) + &link("A\\b", DATA), 7, "the link A\\b is inside of the link a"),
            (link("a\\b", DATA) + &link("a", DATA), 4, "the link a\\b is inside of the link a"),
            (link("a", DATA) + &link("A", DATA), 7, "a second link has the path A"),
            (link("a", DATA) + "ttl = 2678401\n", 2, "ttl is at most"),
            (format!("probe_seconds = 1\n{}", link("a", DATA)), 2, "must be 2 to 3600"),
            (format!("probe_seconds = 3601\n{}", link("a", DATA)), 2, "must be 2 to 3600"),
            (link("a", "[5]"), 5, "`targets` must be"),
            (link("a", DATA) + "ordering = \"near\"\n", 6, "ordering"),
        ] {
            let found = files(&text);
            assert_eq!(found.len(), 1, "{text}: {found:?}");
            assert!(found[0].starts_with(&format!("line {line}: ")), "{text}: {found:?}");
            assert!(found[0].contains(what), "{found:?}");
        }
        for (name, what) in [
            ("IPC$", "reserved"),
            ("netlogon", "reserved for domain controllers"),
            ("a\\\\b", "not allowed"),
            ("{user}", "cannot be called"),
        ] {
            let found = faults(&format!("[[namespace]]\nname = \"{name}\"\n"));
            assert!(found.len() == 1 && found[0].contains(what), "{name}: {found:?}");
        }
        assert!(files("[[namespace]]\nname = \"FILES\"\n")[0].contains("a second namespace"));
        let share = "[[share]]\nname = \"files\"\npath = \"/srv\"\n";
        let found = faults(&format!("{share}{FILES}allow = [\"ann\"]\n"));
        assert!(found[0].contains("which has allow and comment itself"), "{found:?}");
        let users = "[[share]]\nname = \"files\"\npath = \"/srv/{user}\"\n";
        assert!(faults(&format!("{users}{FILES}"))[0].contains("a folder for each user"));
        let many = (0..257).map(|at| format!("[[namespace]]\nname = \"n{at}\"\n"));
        assert!(faults(&many.collect::<String>())[0].contains("more than 256 namespaces"));
    }
}
