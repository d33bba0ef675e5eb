//! Addresses that move from one node to another.
//!
//! An address is on this machine while its unit is served here. The kernel has it for
//! [`ADDRESS_LIFE`] at most, and [`Floating::tick`] keeps it: when the process that ticks has ended or
//! hangs, the address goes by itself. After the limit of [`Floating::serve_until`] addresses are taken
//! away too, also if the server that should say so is stopped; they come back when the limit is later.
//! Before an address leaves, packets to it are taken no more, and connections at it are reset, so that their
//! clients connect again, at the next machine that has it.

mod address;
mod announce;
mod connections;
mod netlink;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

pub use address::{FloatingAddress, NotAnAddress};
use rustix::thread::{CapabilitySet, capabilities};

use crate::fault::FenceFault;
use crate::limits::{ADDRESS_LIFE, ANNOUNCED};
use announce::Announcer;
use connections::Connections;
use netlink::{AddressOnLink, Change, Link, Netlink};

/// The errors of netlink that are told apart: EEXIST, EADDRNOTAVAIL, ENODEV.
const EXISTS: Option<i32> = Some(17);
const NOT_HERE: [Option<i32>; 2] = [Some(99), Some(19)];

/// The addresses of a node. Moments are of CLOCK_BOOTTIME.
#[derive(Debug)]
pub struct Floating {
    netlink: Netlink,
    announcer: Announcer,
    /// None if the kernel ends no connections.
    connections: Option<Connections>,
    /// A fault that the next [`Floating::tick`] returns.
    untold: Option<FenceFault>,
    /// The addresses that should be on this machine.
    raised: BTreeMap<IpAddr, Raised>,
    /// Addresses are on this machine until then.
    limit: Option<Duration>,
}

#[derive(Debug)]
struct Raised {
    wanted: FloatingAddress,
    link: Link,
    /// On this machine.
    is_up: bool,
    /// The moment since which it is, and announcements that were made since then.
    since: Duration,
    announced: usize,
}

impl Floating {
    /// Opens sockets, and takes away what an earlier process has left of `configured`.
    ///
    /// # Errors
    /// A sentence, also for an address that this machine has by another hand.
    pub fn open(configured: &[FloatingAddress]) -> Result<Self, FenceFault> {
        let rights = "addresses need the capabilities CAP_NET_ADMIN and CAP_NET_RAW; start frevo as \
                      root or by its systemd unit";
        let netlink = Netlink::open().map_err(|error| FenceFault::of("rtnetlink", error))?;
        let has = capabilities(None).map_err(|error| FenceFault::of(rights, error))?.effective;
        if !has.contains(CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW) {
            return Err(FenceFault(rights.into()));
        }
        let announcer = Announcer::open().map_err(|error| FenceFault::of(rights, error))?;
        let (connections, untold) = match Connections::open() {
            Ok(connections) => (Some(connections), None),
            Err(error) => (None, Some(no_reset(error))),
        };
        let raised = BTreeMap::new();
        let mut this = Self { netlink, announcer, connections, untold, raised, limit: None };
        for held in this.held()? {
            let is_configured =
                configured.iter().any(|configured| configured.address == held.address);
            if is_configured && held.floats {
                this.delete(held.interface, held.address, held.prefix)?;
            } else if is_configured {
                return Err(by_another_hand(held.address));
            }
        }
        Ok(this)
    }

    /// Has an address on this machine from now on, and announces it. One that is there stays.
    ///
    /// # Errors
    /// A sentence: the address is not on this machine.
    pub fn raise(&mut self, wanted: &FloatingAddress, now: Duration) -> Result<(), FenceFault> {
        if self.raised.get(&wanted.address).is_some_and(|raised| raised.is_up) {
            return Ok(());
        }
        let link = self.link_for(wanted)?;
        let raised =
            Raised { wanted: wanted.clone(), link, is_up: false, since: now, announced: 0 };
        let before = self.raised.insert(wanted.address, raised);
        drop(before);
        if self.is_over(now) {
            // The next limit brings it.
            return Ok(());
        }
        let done = self.up(wanted.address, now);
        if done.is_err() {
            self.raised.remove(&wanted.address);
        }
        done
    }

    /// Takes an address off this machine. One that is not there is no fault.
    ///
    /// # Errors
    /// A sentence: the kernel takes the address away within [`ADDRESS_LIFE`] all the same.
    pub fn lower(&mut self, address: IpAddr) -> Result<(), FenceFault> {
        let Some(raised) = self.raised.remove(&address) else { return Ok(()) };
        self.delete(raised.link.index, address, raised.wanted.prefix)
    }

    /// Resets the connections at all addresses on this machine. Returns false without an address.
    pub fn reset_connections(&mut self) -> bool {
        let up: Vec<IpAddr> =
            self.raised.iter().filter(|(_, raised)| raised.is_up).map(|(at, _)| *at).collect();
        up.iter().for_each(|address| self.reset(*address));
        !up.is_empty()
    }

    /// Takes all addresses off this machine.
    pub fn lower_all(&mut self) {
        for address in self.raised.keys().copied().collect::<Vec<_>>() {
            // The kernel takes away what is left.
            let _ = self.lower(address);
        }
    }

    /// Sets the limit, the one of the server. Until the first one there is none.
    pub fn serve_until(&mut self, limit: Duration, now: Duration) -> Vec<FenceFault> {
        self.limit = Some(limit);
        self.tick(now)
    }

    /// Keeps the addresses, announces new ones again, and takes all away after the limit. It is to be
    /// called every [`ADDRESS_INTERVAL`](crate::limits::ADDRESS_INTERVAL).
    pub fn tick(&mut self, now: Duration) -> Vec<FenceFault> {
        let is_over = self.is_over(now);
        let mut faults: Vec<FenceFault> = self.untold.take().into_iter().collect();
        for address in self.raised.keys().copied().collect::<Vec<_>>() {
            let done = if is_over { self.down(address) } else { self.up(address, now) };
            faults.extend(done.err());
        }
        faults
    }

    fn is_over(&self, now: Duration) -> bool {
        self.limit.is_some_and(|limit| now >= limit)
    }

    /// Adds or keeps an address, and makes the announcements that are due.
    fn up(&mut self, address: IpAddr, now: Duration) -> Result<(), FenceFault> {
        let Some(raised) = self.raised.get_mut(&address) else { return Ok(()) };
        let life = u32::try_from(ADDRESS_LIFE.as_secs()).unwrap_or(u32::MAX);
        let change = if raised.is_up { Change::Keep(life) } else { Change::Add(life) };
        let prefix = raised.wanted.prefix;
        let mut done = self.netlink.change(raised.link.index, address, prefix, change);
        if done.as_ref().is_err_and(|error| error.raw_os_error() == EXISTS) {
            let held = self.netlink.addresses().unwrap_or_default();
            if held.iter().any(|held| held.address == address && !held.floats) {
                return Err(by_another_hand(address));
            }
            // One that should have left: no packets may arrive at it any more. A fault is that of the next call.
            _ = self.netlink.change(raised.link.index, address, prefix, Change::Delete);
            done = self.netlink.change(raised.link.index, address, prefix, Change::Add(life));
        }
        done.map_err(|error| FenceFault::of(&raised.wanted, error))?;
        if !raised.is_up {
            (raised.is_up, raised.since, raised.announced) = (true, now, 0);
        }
        let since = now.saturating_sub(raised.since);
        if ANNOUNCED.get(raised.announced).is_some_and(|due| since >= *due) {
            raised.announced += 1;
            let told = self.announcer.announce(&raised.link, address);
            told.map_err(|error| FenceFault::of(format!("{address} is not announced"), error))?;
        }
        Ok(())
    }

    fn down(&mut self, address: IpAddr) -> Result<(), FenceFault> {
        let Some(raised) = self.raised.get_mut(&address).filter(|raised| raised.is_up) else {
            return Ok(());
        };
        raised.is_up = false;
        let (link, prefix) = (raised.link.index, raised.wanted.prefix);
        self.delete(link, address, prefix)
    }

    /// Resets the connections at an address. The address leaves also if that fails.
    fn reset(&mut self, address: IpAddr) {
        let Some(connections) = &mut self.connections else { return };
        if let Err(error) = connections.reset(address) {
            self.untold = Some(no_reset(error));
        }
    }

    fn delete(&mut self, interface: u32, address: IpAddr, prefix: u8) -> Result<(), FenceFault> {
        // From here on no client connects to the address, so none connects between the reset and the deletion: the
        // end of such a connection could not be told. Without this they are a moment apart, as best they can.
        _ = self.netlink.take_no_more(interface, address);
        self.reset(address);
        match self.netlink.change(interface, address, prefix, Change::Delete) {
            Err(error) if !NOT_HERE.contains(&error.raw_os_error()) => {
                Err(FenceFault::of(format!("{address} stays on this machine"), error))
            }
            _ => Ok(()),
        }
    }

    fn held(&mut self) -> Result<Vec<AddressOnLink>, FenceFault> {
        self.netlink.addresses().map_err(|error| FenceFault::of("rtnetlink", error))
    }

    /// The interface with the name, or the first one with another address of the network.
    fn link_for(&mut self, wanted: &FloatingAddress) -> Result<Link, FenceFault> {
        let links = self.netlink.links().map_err(|error| FenceFault::of("rtnetlink", error))?;
        let held = self.held()?;
        if held.iter().any(|held| held.address == wanted.address && !held.floats) {
            return Err(by_another_hand(wanted.address));
        }
        let found = match &wanted.interface {
            Some(name) => links.into_iter().find(|link| link.name == *name),
            None => {
                let of_network = |held: &&AddressOnLink| {
                    !held.floats && address::is_in(wanted.address, held.address, held.prefix)
                };
                let interface = held.iter().find(of_network).map(|held| held.interface);
                links.into_iter().find(|link| Some(link.index) == interface)
            }
        };
        found.ok_or_else(|| match &wanted.interface {
            Some(name) => FenceFault(format!("{wanted}: there is no interface {name}")),
            None => FenceFault(format!(
                "{wanted}: no interface has an address of this network; name one: {wanted}%eth0"
            )),
        })
    }
}

impl Drop for Floating {
    fn drop(&mut self) {
        self.lower_all();
    }
}

fn no_reset(error: std::io::Error) -> FenceFault {
    let what = "connections are not reset before an address leaves, so that clients notice a move later; \
                this takes a kernel with CONFIG_INET_DIAG_DESTROY";
    FenceFault::of(what, error)
}

fn by_another_hand(address: IpAddr) -> FenceFault {
    FenceFault(format!(
        "{address} is an address of this machine already; take it out of the network's configuration: \
         frevo adds it where it is served"
    ))
}
