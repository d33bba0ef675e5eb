//! The order of targets in a referral: MS-DFSC 3.2.1.2 and 3.2.5.5.

use alloc::vec::Vec;
use core::fmt;

use crate::link::{Ordering, PriorityClass, State, Target};

/// The client of a referral, as far as it decides the order of targets.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// A random number, which decides the order within sets.
    pub number: u64,
    /// True for a target in the client's site.
    pub is_near: &'a dyn Fn(&Target) -> bool,
    /// True for the name or address of a server that does not answer.
    pub is_failing: &'a dyn Fn(&str) -> bool,
}

impl fmt::Debug for Asker<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Asker").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A target in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Placed<'a> {
    pub(crate) target: &'a Target,
    /// The first one of a target set.
    pub(crate) begins_set: bool,
}

/// Health, group, site cost, place of the class in its group, rank: targets that are equal in it are a set.
type Preference = [u8; 5];

/// Returns the targets that are online, in the order for this client.
pub(crate) fn ordered<'a>(
    targets: &'a [Target],
    ordering: Ordering,
    asker: &Asker<'_>,
) -> Vec<Placed<'a>> {
    let mut numbers = Numbers(asker.number);
    let online = targets.iter().filter(|target| target.state == State::Online);
    let mut placed: Vec<(Preference, u64, &Target)> = online
        .map(|target| (preference(target, ordering, asker), numbers.next(), target))
        .collect();
    placed.sort_by_key(|(place, number, _)| (*place, *number));
    let mut before = None;
    placed
        .into_iter()
        .map(|(place, _, target)| {
            let begins_set = before.replace(place) != Some(place);
            Placed { target, begins_set }
        })
        .collect()
}

fn preference(target: &Target, ordering: Ordering, asker: &Asker<'_>) -> Preference {
    // Deviation: MS-DFSC 3.2.5.5 has no health. A target whose server does not answer is behind all others, so
    // that no client waits for it first; it is never left out, since the client may reach it. Among
    // such targets, and if all are such, the order is that of the section.
    let is_failing = u8::from((asker.is_failing)(target.server()));
    if ordering == Ordering::Random {
        return [is_failing, 0, 0, 0, 0];
    }
    // MS-DFSC 3.2.5.5: three groups by class; in the second one the site cost counts before the class.
    let (group, class) = match target.class {
        PriorityClass::GlobalHigh => (0, 0),
        PriorityClass::SiteCostHigh => (1, 0),
        PriorityClass::SiteCostNormal => (1, 1),
        PriorityClass::SiteCostLow => (1, 2),
        PriorityClass::GlobalLow => (2, 0),
    };
    let is_far = ordering == Ordering::Site && !(asker.is_near)(target);
    [is_failing, group, is_far.into(), class, target.rank]
}

/// Numbers that follow from one number: the steps of SplitMix64.
struct Numbers(u64);

impl Numbers {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}
