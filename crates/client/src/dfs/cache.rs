//! The cache of DFS referrals: ReferralCache of MS-DFSC 3.1.1.

use std::time::Duration;

use frevo_wire::command::ioctl::dfs::{ReferralHeaderFlags, ReferralResponse};
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::dfs_path::{DfsPath, behind};
use crate::dial::ServerName;
use crate::limits::{REFERRAL_AT_LEAST, REFERRAL_FOR, REFERRALS_KEPT, TARGETS_TRIED};

/// A referral: a part of a namespace and its targets.
#[derive(Debug, Clone)]
pub(super) struct Known {
    /// `\server\share\path` in lower case.
    pub(super) prefix: String,
    /// Port of that server, if it is not the usual one.
    port: Option<u16>,
    /// The targets in the server's order, by priority and distance.
    pub(super) targets: Vec<Target>,
    /// TargetHint: the index of the target that worked.
    hint: usize,
    /// TargetFailback: return to a better set of targets.
    falls_back: bool,
    until: Instant,
}

/// A target; the first of its target set, or a further one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) place: DfsPath,
    begins_set: bool,
}

impl Known {
    /// Reads a referral for `place`. Returns it with the rest of the path, which goes behind the
    /// targets. `None` if it consumes more than was asked for, or none of its targets is valid
    /// and allowed.
    pub(super) fn understood(
        response: &ReferralResponse,
        place: &DfsPath,
        is_allowed: impl Fn(&DfsPath) -> bool,
    ) -> Option<(Self, String)> {
        let asked: Vec<u16> = place.unc().encode_utf16().collect();
        let consumed = usize::from(response.path_consumed) / 2;
        let prefix = String::from_utf16(asked.get(..consumed)?).ok()?;
        let rest = String::from_utf16(asked.get(consumed..)?).ok()?;
        // The prefix must end with a component and include at least server and share.
        let is_whole = rest.is_empty() || rest.starts_with('\\') || prefix.ends_with('\\');
        let depth = prefix.split('\\').filter(|part| !part.is_empty()).count();
        if !is_whole || depth < 2 {
            return None;
        }
        let mut targets = Vec::new();
        let mut begins_set = false;
        for referral in &response.referrals {
            // If the first target of a set is skipped, the next target is marked as the first of
            // the set.
            begins_set |= referral.begins_set;
            let target = DfsPath::of_target(&referral.target, &place.server);
            if let Some(place) = target.filter(&is_allowed) {
                targets.push(Target { place, begins_set });
                begins_set = false;
            }
            // More targets would never be tried, and would only take memory.
            if targets.len() == TARGETS_TRIED {
                break;
            }
        }
        if targets.is_empty() {
            return None;
        }
        let lives = response.referrals.iter().map(|referral| referral.time_to_live_s).min();
        let lives = Duration::from_secs(lives.unwrap_or_default().into());
        let known = Self {
            prefix: fold_name(prefix.trim_end_matches('\\')),
            port: place.server.port,
            targets,
            hint: 0,
            falls_back: response.flags.contains(ReferralHeaderFlags::TARGET_FAILBACK),
            until: Instant::now() + lives.clamp(REFERRAL_AT_LEAST, REFERRAL_FOR),
        };
        Some((known, rest.trim_start_matches('\\').to_owned()))
    }

    /// Returns the targets in the order of trying, with their indexes: the one that worked, then
    /// the others in the server's order (MS-DFSC 3.1.5.2).
    pub(super) fn tried(&self) -> impl Iterator<Item = (usize, &DfsPath)> {
        let first = self.targets.get(self.hint).map(|target| (self.hint, &target.place));
        let others = self.targets.iter().map(|target| &target.place).enumerate();
        first.into_iter().chain(others.filter(|(at, _)| *at != self.hint))
    }

    /// Returns the root or link that it is about.
    pub(super) fn place(&self) -> Option<DfsPath> {
        let mut parts = self.prefix.split('\\').filter(|part| !part.is_empty());
        let server = ServerName { host: parts.next()?.to_owned(), port: self.port };
        let share = parts.next()?.to_owned();
        Some(DfsPath { server, share, path: parts.collect::<Vec<_>>().join("\\") })
    }

    /// Returns true for a root, `\server\share`; false for a link.
    pub(super) fn is_of_root(&self) -> bool {
        self.prefix.split('\\').filter(|part| !part.is_empty()).count() == 2
    }

    fn is_of(&self, other: &Self) -> bool {
        (&self.prefix, self.port) == (&other.prefix, other.port)
    }

    /// Returns true for a target of the first set; without sets for the first target.
    fn is_best(&self, at: usize) -> bool {
        self.targets.iter().take(at + 1).skip(1).all(|target| !target.begins_set)
            && (at == 0 || self.targets.iter().any(|target| target.begins_set))
    }

    /// Stays with the target that `old` used: MS-DFSC 3.1.5.4.3.
    fn refresh(&mut self, old: &Self) {
        let used = old.targets.get(old.hint).map(|target| &target.place);
        let at = self.targets.iter().position(|target| Some(&target.place) == used);
        if let Some(at) = at
            && (!self.falls_back || self.is_best(at))
        {
            self.hint = at;
        }
    }
}

/// The referral cache of a client. Expired referrals stay: after a new one came, the target
/// that worked is tried first.
#[derive(Debug, Default)]
pub(crate) struct Referrals(Mutex<Vec<Known>>);

impl Referrals {
    /// Returns the referral with the longest prefix of `place`, and the rest of the path.
    pub(super) fn find(&self, place: &DfsPath) -> Option<(Known, String)> {
        let now = Instant::now();
        let known = self.0.lock();
        let path = place.unc();
        let covers = |known: &&Known| {
            known.until > now
                && known.port == place.server.port
                && behind(&path, &known.prefix).is_some()
        };
        let found = known.iter().filter(covers).max_by_key(|known| known.prefix.len())?;
        let rest = behind(&path, &found.prefix)?.to_owned();
        Some((found.clone(), rest))
    }

    pub(super) fn keep(&self, mut new: Known) -> Known {
        let mut known = self.0.lock();
        if let Some(at) = known.iter().position(|known| known.is_of(&new)) {
            new.refresh(&known.remove(at));
        }
        if known.len() >= REFERRALS_KEPT {
            known.remove(0);
        }
        known.push(new.clone());
        new
    }

    pub(super) fn worked(&self, part: &Known, hint: usize) {
        let mut known = self.0.lock();
        // A newer referral may have replaced the entry meanwhile. So the hint is stored only if the
        // targets are still the same.
        let is_it = |one: &&mut Known| one.is_of(part) && one.targets == part.targets;
        if let Some(known) = known.iter_mut().find(is_it) {
            known.hint = hint;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_wire::command::ioctl::dfs::Referral;

    fn place(unc: &str) -> DfsPath {
        DfsPath::of_target(unc, &ServerName::new("files").at_port(4450)).unwrap()
    }

    fn response(consumed: u16, targets: &[&str]) -> ReferralResponse {
        let referral = |target: &&str| Referral {
            is_root: false,
            time_to_live_s: 60,
            path: String::new(),
            target: target.trim_start_matches('|').into(),
            begins_set: target.starts_with('|'),
        };
        ReferralResponse {
            path_consumed: consumed * 2,
            flags: ReferralHeaderFlags::EMPTY,
            referrals: targets.iter().map(referral).collect(),
        }
    }

    fn known(response: &ReferralResponse) -> Option<(Known, String)> {
        Known::understood(response, &place("\\files\\dfs\\Link\\é\\x"), |_| true)
    }

    fn tried(known: &Known) -> Vec<String> {
        known.tried().map(|(_, place)| place.server.host.clone()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn referrals_are_understood_and_kept_for_their_time() {
        let asked = place("\\files\\dfs\\Link\\é\\x");
        let (found, rest) = known(&response(15, &["\\one\\data"])).unwrap();
        assert_eq!((&*found.prefix, &*rest), ("\\files\\dfs\\link", "é\\x"));
        assert!(!found.is_of_root());
        assert!(known(&response(10, &["\\one\\data"])).unwrap().0.is_of_root());
        // Each value of PathConsumed is refused, because it ends within a component, before the
        // share, or beyond the path.
        for consumed in [14, 12, 6, 0, 400] {
            assert!(known(&response(consumed, &["\\one\\data"])).is_none());
        }
        assert!(known(&response(15, &["nowhere", ""])).is_none());
        let both = response(15, &["\\one\\data", "\\FILES\\other"]);
        let here = |place: &DfsPath| place.server.host == "FILES";
        assert_eq!(tried(&Known::understood(&both, &asked, here).unwrap().0), ["FILES"]);
        let many = ["\\no", "\\one\\data"].repeat(TARGETS_TRIED * 2);
        assert_eq!(known(&response(15, &many)).unwrap().0.targets.len(), TARGETS_TRIED);
        let all = Referrals::default();
        all.keep(found);
        let (found, rest) = all.find(&place("\\FILES\\DFS\\LINK\\y\\z")).unwrap();
        assert_eq!((found.targets.len(), &*rest), (1, "y\\z"));
        assert!(all.find(&place("\\files\\dfs\\linked")).is_none());
        assert!(all.find(&place("\\files\\dfs")).is_none());
        let mut elsewhere = place("\\files\\dfs\\link");
        elsewhere.server.port = None;
        assert!(all.find(&elsewhere).is_none(), "another server of that host");
        let mut deeper = found;
        deeper.prefix.push_str("\\y");
        all.keep(deeper);
        let (_, rest) = all.find(&place("\\FILES\\DFS\\LINK\\y\\z")).unwrap();
        assert_eq!(rest, "z", "the longest one");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(all.find(&asked).is_none(), "its time is over");
        for at in 0..REFERRALS_KEPT * 2 {
            let (mut one, _) = known(&response(15, &["\\one\\data"])).unwrap();
            one.prefix = format!("\\files\\dfs\\{at}");
            all.keep(one);
        }
        assert_eq!(all.0.lock().len(), REFERRALS_KEPT);
        // A referral with a lifetime of zero serves the request that asked for it. After that it
        // stays in the cache for REFERRAL_AT_LEAST, and no longer.
        let mut short = response(15, &["\\one\\data"]);
        short.referrals[0].time_to_live_s = 0;
        all.keep(known(&short).unwrap().0);
        assert!(all.find(&asked).is_some());
        tokio::time::advance(REFERRAL_AT_LEAST).await;
        assert!(all.find(&asked).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn the_target_that_worked_is_stayed_with() {
        let all = Referrals::default();
        let sets = ["|\\a\\s", "\\b\\s", "|\\c\\s", "\\d\\s"];
        let asked = place("\\files\\dfs\\link");
        let mut first = response(15, &sets);
        let kept = all.keep(known(&first).unwrap().0);
        assert_eq!(tried(&kept), ["a", "b", "c", "d"]);
        all.worked(&kept, 2);
        assert_eq!(tried(&all.find(&asked).unwrap().0), ["c", "a", "b", "d"]);
        // The new referral lists the targets in another order, but the cache keeps the known order.
        tokio::time::advance(Duration::from_secs(61)).await;
        let turned = response(15, &["|\\b\\s", "\\a\\s", "|\\d\\s", "\\c\\s"]);
        assert_eq!(tried(&all.keep(known(&turned).unwrap().0)), ["c", "b", "a", "d"]);
        // The targets `d` and `c` are not in the new referral, so they are removed.
        let fewer = response(15, &["|\\b\\s", "\\a\\s"]);
        assert_eq!(tried(&all.keep(known(&fewer).unwrap().0)), ["b", "a"]);
        // With failback, a target of the first set may stay in front (`b`), but a target of a later
        // set may not (`d`).
        first.flags = ReferralHeaderFlags::TARGET_FAILBACK;
        let kept = all.keep(known(&first).unwrap().0);
        assert_eq!(tried(&kept), ["b", "a", "c", "d"]);
        all.worked(&kept, 3);
        assert_eq!(tried(&all.keep(known(&first).unwrap().0)), ["a", "b", "c", "d"]);
    }
}
