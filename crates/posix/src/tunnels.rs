//! A short memory of removed names.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use frevo_store::FileKey;
use frevo_store::short_name::short_name;
use parking_lot::Mutex;

use crate::limits::TUNNELS;
use crate::names::{self, Spelling};

/// Time for which a removed name is remembered, MS-FSA 2.1.1.2.
const TUNNEL_AGE: Duration = Duration::from_secs(15);

/// Volume.TunnelCacheList for names: a client that removes or renames a file and soon creates one
/// by its short name means the long name again. Programs that know only short names save files in
/// this way.
#[derive(Debug, Default)]
pub(crate) struct Tunnels(Mutex<VecDeque<Tunnel>>);

#[derive(Debug)]
struct Tunnel {
    since: Instant,
    parent: FileKey,
    short: String,
    long: Vec<u8>,
}

impl Tunnels {
    pub(crate) fn note(&self, parent: FileKey, long: &[u8], spelling: Spelling) {
        let Some(short) = short_name(&names::map(long, spelling)) else { return };
        let mut all = self.0.lock();
        all.retain(|tunnel| tunnel.since.elapsed() < TUNNEL_AGE);
        if all.len() >= TUNNELS {
            all.pop_front();
        }
        all.push_back(Tunnel { since: Instant::now(), parent, short, long: long.to_vec() });
    }

    pub(crate) fn take(&self, parent: FileKey, short: &str) -> Option<Vec<u8>> {
        let mut all = self.0.lock();
        let is_meant = |tunnel: &Tunnel| {
            tunnel.parent == parent
                && tunnel.short.eq_ignore_ascii_case(short)
                && tunnel.since.elapsed() < TUNNEL_AGE
        };
        let at = all.iter().rposition(is_meant)?;
        all.remove(at).map(|tunnel| tunnel.long)
    }
}
