//! Schedules: when a snapshot is due, and which ones stay.

use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;

use crate::limits::KEPT_OF_A_PERIOD;
use crate::period::Period;
use crate::second::Second;

/// The number of snapshots that stay for periods of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    period: Period,
    keep: u32,
}

/// A schedule, such as `hourly keep 24, daily keep 30`: a snapshot is made in each of the shortest periods,
/// and the newest snapshot of each of the last periods stays. `none` makes none, and removes none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// The shortest period first, each kind at most once. Empty for `none`.
    rules: Vec<Rule>,
}

/// The schedule by which snapshots are made on request alone.
const NONE: &str = "none";

/// The reason for which a text is no [`Schedule`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScheduleFault {
    /// This part is not of the form `daily keep 30`.
    Form(String),
    /// This is no kind of period.
    Word(String),
    /// This kind of period occurs twice.
    Twice(Period),
    /// The number of snapshots for this kind of period is 0 or too large.
    Count(Period),
}

impl fmt::Display for ScheduleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Form(part) => {
                write!(
                    f,
                    "{part:?} is no part of a schedule such as \"hourly keep 24, daily keep 30\""
                )
            }
            Self::Word(word) => {
                write!(f, "{word:?} is none of hourly, daily, weekly and monthly")
            }
            Self::Twice(period) => write!(f, "{period} can be used only once"),
            Self::Count(period) => {
                write!(f, "{period} must keep from 1 to {KEPT_OF_A_PERIOD} snapshots")
            }
        }
    }
}

impl core::error::Error for ScheduleFault {}

impl FromStr for Schedule {
    type Err = ScheduleFault;

    fn from_str(text: &str) -> Result<Self, ScheduleFault> {
        let mut rules: Vec<Rule> = Vec::new();
        if text.trim() == NONE {
            return Ok(Self { rules });
        }
        for part in text.split(',') {
            let mut words = part.split_ascii_whitespace();
            let (Some(word), Some("keep"), Some(count), None) =
                (words.next(), words.next(), words.next(), words.next())
            else {
                return Err(ScheduleFault::Form(String::from(part.trim())));
            };
            let is_named = |period: &Period| period.word() == word;
            let Some(period) = Period::ALL.into_iter().find(is_named) else {
                return Err(ScheduleFault::Word(String::from(word)));
            };
            if rules.iter().any(|rule| rule.period == period) {
                return Err(ScheduleFault::Twice(period));
            }
            if !count.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(ScheduleFault::Form(String::from(part.trim())));
            }
            let keep = count.parse().ok().filter(|count| (1..=KEPT_OF_A_PERIOD).contains(count));
            rules.push(Rule { period, keep: keep.ok_or(ScheduleFault::Count(period))? });
        }
        rules.sort_by_key(|rule| rule.period);
        Ok(Self { rules })
    }
}

/// Writes the schedule, the shortest period first.
impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.rules.is_empty() {
            return f.write_str(NONE);
        }
        for (at, Rule { period, keep }) in self.rules.iter().enumerate() {
            let between = if at == 0 { "" } else { ", " };
            write!(f, "{between}{period} keep {keep}")?;
        }
        Ok(())
    }
}

impl Schedule {
    /// Returns the period in each of which a snapshot is made.
    pub fn shortest(&self) -> Period {
        self.rules.first().map_or(Period::Monthly, |rule| rule.period)
    }

    /// Returns true for `none`, which makes none, and removes none.
    pub const fn is_none(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the number of snapshots that stay at most, beside those that have a time to come.
    pub fn kept_at_most(&self) -> usize {
        self.rules.iter().map(|rule| usize::try_from(rule.keep).unwrap_or(usize::MAX)).sum()
    }

    /// Returns true if a snapshot is to be made now: none of those that exist is of the present period,
    /// whoever asked for it. So a period that has passed without one is not made up for: the present one
    /// has its snapshot.
    pub fn is_due(&self, existing: &[Second], now: Second) -> bool {
        let shortest = self.shortest();
        let present = shortest.number(now);
        !self.rules.is_empty() && !existing.iter().any(|taken| shortest.number(*taken) == present)
    }

    /// Returns the second at which the next snapshot is due if none is made until then; `now` if one is due.
    /// None after 9999, and for `none`.
    pub fn next(&self, existing: &[Second], now: Second) -> Option<Second> {
        if self.rules.is_empty() {
            return None;
        }
        if self.is_due(existing, now) {
            return Some(now);
        }
        let shortest = self.shortest();
        // A clock that was set back has snapshots before it.
        let ahead: BTreeSet<u64> = existing.iter().map(|taken| shortest.number(*taken)).collect();
        let mut number = shortest.number(now).checked_add(1)?;
        while ahead.contains(&number) {
            number = number.checked_add(1)?;
        }
        shortest.start(number)
    }

    /// Returns the snapshots that are to be removed, the oldest first. A snapshot stays if it is the newest
    /// of one of the last periods that have snapshots, as many of each kind as the schedule keeps. Snapshots
    /// of a time to come, which a wrong clock has left, stay and take no place of others. So the newest
    /// snapshot until now always stays, and a jump of the clock onwards removes none for its age.
    pub fn surplus(&self, existing: &[Second], now: Second) -> Vec<Second> {
        if self.rules.is_empty() {
            return Vec::new();
        }
        let mut past: Vec<Second> =
            existing.iter().copied().filter(|taken| *taken <= now).collect();
        past.sort_unstable();
        past.dedup();
        let mut stay = BTreeSet::new();
        for Rule { period, keep } in &self.rules {
            let mut last = None;
            let is_newest_of_its_period = |taken: &&Second| {
                let number = Some(period.number(**taken));
                core::mem::replace(&mut last, number) != number
            };
            let newest = past.iter().rev().filter(is_newest_of_its_period);
            stay.extend(newest.take(usize::try_from(*keep).unwrap_or(usize::MAX)).copied());
        }
        past.retain(|taken| !stay.contains(taken));
        past
    }
}

#[cfg(test)]
mod tests;
