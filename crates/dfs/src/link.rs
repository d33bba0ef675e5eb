//! Links and their targets.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU16;

use crate::key::components;
use crate::limits::{COMMENT_UNITS, COMPONENT_UNITS, COMPONENTS, PATH_UNITS, RANK, TARGETS};

/// The state of a namespace, of a link or of a target: MS-DFSNM 2.2.2.3 and 2.2.2.5.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum State {
    /// In use.
    #[default]
    Online,
    /// Left out of referrals. A namespace or link that is offline cannot be used.
    Offline,
}

/// The priority class of a target, MS-DFSNM 2.2.2.6. MS-DFSC 3.2.5.5 has the order in referrals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PriorityClass {
    /// Before all others, wherever it is.
    GlobalHigh,
    /// First among the targets of its site.
    SiteCostHigh,
    /// The default.
    #[default]
    SiteCostNormal,
    /// Last among the targets of its site.
    SiteCostLow,
    /// After all others, wherever it is.
    GlobalLow,
}

/// The order of targets in a referral.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Ordering {
    /// By priority class, and among equal ones those near the client first: MS-DFSC 3.2.1.2.
    #[default]
    Site,
    /// By priority class and rank only.
    Priority,
    /// By chance; classes and ranks do not count.
    Random,
}

/// A site: the number of a group of networks that are near each other. Its meaning is the server's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SiteId(NonZeroU16);

impl SiteId {
    /// Returns the id of the site at this place of a list. None beyond [`SITES`](crate::limits::SITES).
    pub fn of_index(index: usize) -> Option<Self> {
        let index = u16::try_from(index).ok().filter(|_| index < crate::limits::SITES)?;
        index.checked_add(1).and_then(NonZeroU16::new).map(Self)
    }

    /// Returns its place in the list.
    pub fn index(self) -> usize {
        usize::from(self.0.get()).saturating_sub(1)
    }
}

/// A target of a link: a share of a server, or a folder in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// `\server\share\path`, with one backslash before it and without one at its end.
    path: Box<str>,
    /// Offline targets are in no referral.
    pub state: State,
    /// Its class.
    pub class: PriorityClass,
    /// Its rank in its class: 0, the best, to 31.
    pub rank: u8,
    /// Its site, if the administrator says it. Else it follows from the server's addresses.
    pub site: Option<SiteId>,
}

impl Target {
    /// Returns the target `\\server\share` or `\\server\share\path`, of normal priority. One backslash
    /// in place of two is accepted.
    ///
    /// # Errors
    /// [`BadLink::Target`] for a path that is none.
    pub fn new(unc: &str) -> Result<Self, BadLink> {
        let bad = || BadLink::Target(unc.into());
        let bare = unc.strip_prefix("\\\\").or_else(|| unc.strip_prefix('\\')).ok_or_else(bad)?;
        let bare = bare.strip_suffix('\\').unwrap_or(bare);
        let parts: Vec<&str> = bare.split('\\').collect();
        let is_good = match &*parts {
            [server, rest @ ..] if !rest.is_empty() && rest.len() <= COMPONENTS => {
                is_host(server) && rest.iter().all(|part| is_component(part))
            }
            _ => false,
        };
        if !is_good || bare.encode_utf16().count() >= PATH_UNITS {
            return Err(bad());
        }
        let mut path = String::with_capacity(bare.len().saturating_add(1));
        path.push('\\');
        path.push_str(bare);
        let (state, class) = (State::Online, PriorityClass::SiteCostNormal);
        Ok(Self { path: path.into_boxed_str(), state, class, rank: 0, site: None })
    }

    /// Returns `\server\share\path`, as referrals have it.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the server's name or address.
    pub fn server(&self) -> &str {
        components(&self.path).next().unwrap_or_default()
    }

    /// Returns the share's name.
    pub fn share(&self) -> &str {
        components(&self.path).nth(1).unwrap_or_default()
    }

    /// Returns the path in the share. Empty for the share itself.
    pub fn folder(&self) -> &str {
        let mut parts = self.path.splitn(4, '\\').skip(3);
        parts.next().unwrap_or_default()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\\{}", self.path)
    }
}

/// A link: a path of a namespace that stands for shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The path below the root, `a\b\c`, as it was written.
    path: Box<str>,
    /// Its targets, in the order of the administrator.
    targets: Box<[Target]>,
    /// Text for administrators.
    pub comment: Box<str>,
    /// A link that is offline leads nowhere.
    pub state: State,
    /// Seconds for which clients may use a referral; [`LINK_TTL_S`](crate::limits::LINK_TTL_S) without one.
    pub ttl_s: Option<u32>,
    /// The order of its targets; the namespace's without one.
    pub ordering: Option<Ordering>,
    /// True if clients go back to a better target when it works again.
    pub failback: bool,
    /// True if its targets are roots of other namespaces.
    pub is_interlink: bool,
}

impl Link {
    /// Returns a link at `path` to `targets`, without comment and with the defaults of its namespace.
    ///
    /// # Errors
    /// [`BadLink::Path`], [`BadLink::NoTarget`] and [`BadLink::Targets`].
    pub fn new(path: &str, targets: Vec<Target>) -> Result<Self, BadLink> {
        let bare = path.trim_matches('\\');
        let count = bare.split('\\').count();
        let is_good = count <= COMPONENTS
            && bare.encode_utf16().count() <= PATH_UNITS
            && bare.split('\\').all(is_component);
        if !is_good {
            return Err(BadLink::Path(path.into()));
        }
        let link = Self {
            path: bare.into(),
            targets: Box::default(),
            comment: Box::default(),
            state: State::Online,
            ttl_s: None,
            ordering: None,
            failback: false,
            is_interlink: false,
        };
        link.with_targets(targets)
    }

    /// Returns the link with other targets.
    ///
    /// # Errors
    /// [`BadLink::NoTarget`], [`BadLink::Targets`] for too many, [`BadLink::TargetTwice`].
    pub fn with_targets(mut self, targets: Vec<Target>) -> Result<Self, BadLink> {
        if targets.is_empty() {
            return Err(BadLink::NoTarget(self.path));
        }
        if targets.len() > TARGETS {
            return Err(BadLink::Targets(self.path));
        }
        for (at, target) in targets.iter().enumerate() {
            if targets.iter().take(at).any(|other| is_same(&other.path, &target.path)) {
                return Err(BadLink::TargetTwice(target.path.clone()));
            }
        }
        self.targets = targets.into_boxed_slice();
        Ok(self)
    }

    /// Returns the path below the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the targets, at least one, in the order of the administrator.
    pub const fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Returns the targets for changes of their states and priorities.
    pub const fn targets_mut(&mut self) -> &mut [Target] {
        &mut self.targets
    }

    /// Returns the target of that path, in any case; with one backslash before it or two.
    pub fn target(&self, unc: &str) -> Option<&Target> {
        let unc = unc.trim_matches('\\');
        self.targets.iter().find(|target| is_same(target.path.trim_start_matches('\\'), unc))
    }

    /// True if clients can be led somewhere: the link and one of its targets are online.
    pub fn is_online(&self) -> bool {
        self.state == State::Online && self.targets.iter().any(|one| one.state == State::Online)
    }
}

fn is_same(one: &str, other: &str) -> bool {
    frevo_wire::fscc::eq_ignore_case(one, other)
}

/// A link that cannot be in its namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BadLink {
    /// The path is no path of folders.
    Path(Box<str>),
    /// The target is not `\\server\share`, possibly with a folder behind it.
    Target(Box<str>),
    /// The link of this path has no target.
    NoTarget(Box<str>),
    /// The link of this path has more than [`TARGETS`] targets.
    Targets(Box<str>),
    /// The link has this target twice.
    TargetTwice(Box<str>),
    /// Two links have one path.
    Twice(Box<str>),
    /// One link is inside of another.
    Inside {
        /// The path of the inner one.
        link: Box<str>,
        /// The path of the link that it is in.
        outer: Box<str>,
    },
    /// The namespace has more than [`LINKS`](crate::limits::LINKS) links.
    Links,
    /// The comment is longer than [`COMMENT_UNITS`].
    Comment(Box<str>),
    /// A rank above [`RANK`].
    Rank(u8),
}

impl fmt::Display for BadLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(
                f,
                "{path:?} is not the path of a link; write folders with backslashes between them, without \
                 any of \" / : | < > * ?"
            ),
            Self::Target(target) => {
                write!(f, "the target {target} is not \\\\server\\share or a folder below one")
            }
            Self::NoTarget(path) => write!(f, "the link {path} has no target"),
            Self::Targets(path) => write!(f, "the link {path} has more than {TARGETS} targets"),
            Self::TargetTwice(target) => write!(f, "the target \\{target} is named twice"),
            Self::Twice(path) => write!(f, "a second link has the path {path}"),
            Self::Inside { link, outer } => {
                write!(f, "the link {link} is inside of the link {outer}")
            }
            Self::Links => write!(f, "a namespace has at most {} links", crate::limits::LINKS),
            Self::Comment(path) => write!(
                f,
                "the comment of the link {path} is longer than {COMMENT_UNITS} characters"
            ),
            Self::Rank(rank) => write!(f, "the rank {rank} is above {RANK}"),
        }
    }
}

impl core::error::Error for BadLink {}

/// True for a name or an address of a server.
fn is_host(text: &str) -> bool {
    let is_bad = |c: char| c.is_control() || c.is_whitespace() || "/:\"*?<>|@".contains(c);
    is_within(text) && !text.contains(is_bad) && !matches!(text, "." | "..")
}

/// True for a component that clients can name: MS-FSCC 2.1.5.2.
fn is_component(text: &str) -> bool {
    let is_bad = |c: char| c.is_control() || "\\/:\"*?<>|".contains(c);
    let ends_badly = text.ends_with([' ', '.']);
    is_within(text) && !text.contains(is_bad) && !ends_badly
}

fn is_within(text: &str) -> bool {
    !text.is_empty() && text.encode_utf16().count() <= COMPONENT_UNITS
}
