//! The interfaces that this server answers: one row for each, and its state on one association.

use std::fmt;
use std::sync::Arc;

use frevo_rpc::epm::{self, Epm};
use frevo_rpc::lsarpc::{Authority as _, Lsarpc};
use frevo_rpc::samr::{PasswordChange, Samr};
use frevo_rpc::{
    Answer, AuthLevel, Call, Calls, Endpoint, FaultStatus, Interface, Outcome, Terms, dssp, fsrvp,
    interface, lsarpc, mdssvc, netdfs, samr, srvsvc, witness, wkssvc,
};

use super::authentication::Exchange;
use super::fsrvp::{BackupCaller, ShadowCopyCalls};
use super::manage;
use super::mdssvc::{Searcher, SpotlightCalls};
use super::services::Caller;
#[cfg(feature = "test-hooks")]
use super::test_events::{self, TestEvents};
use super::waits::{Event, PipeWaits, Started};
use super::witness::{OfAssociation, Registrant};
use crate::objects::pipe::{PipeEnd, PipeKind};
use crate::objects::server::ServerState;

/// An interface that this server answers.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) interface: &'static Interface,
    /// Makes its state on one association.
    open: fn() -> Box<dyn Answers>,
    /// True for calls that look up users of the host, which may take long.
    asks_host: bool,
    /// True if members of Administrators manage the server by it.
    is_managed: bool,
    /// True for an interface that only nodes of a cluster have.
    is_of_nodes: bool,
}

impl Served {
    /// The facts of its pipe. A client chooses at each call which interface of the pipe it calls, so
    /// what is true of one of them is true of the pipe.
    pub(super) fn kind(&self) -> PipeKind {
        PipeKind {
            name: self.interface.pipes.first().copied().unwrap_or_default(),
            asks_host: self.on_its_pipe().any(|row| row.asks_host),
            is_managed: self.on_its_pipe().any(|row| row.is_managed),
        }
    }

    /// True for an interface whose pipe is only for the list of shares.
    pub(super) fn lists_shares(&self) -> bool {
        self.on_its_pipe().all(|row| std::ptr::eq(row.interface, &srvsvc::INTERFACE))
    }

    /// True unless no share of the server can be searched by Spotlight, which is what this interface is for: macOS
    /// asks for its pipe to know.
    pub(super) fn is_offered(&self, server: &ServerState) -> bool {
        !std::ptr::eq(self.interface, &mdssvc::INTERFACE)
            || server.shares().all().any(|share| share.spotlight)
    }

    /// Returns the rows that are spoken on its pipe: those that share a name of a pipe with it, and
    /// the row itself.
    fn on_its_pipe(&self) -> impl Iterator<Item = &'static Self> {
        let has_name = |pipe| self.interface.pipes.contains(pipe);
        TABLE.iter().filter(move |row| row.interface.pipes.iter().any(has_name))
    }
}

/// All interfaces.
static TABLE: &[Served] = &[
    Served {
        interface: &srvsvc::INTERFACE,
        open: || Box::new(Stateless(|call, caller| srvsvc::call(call.opnum, &call.stub, caller))),
        asks_host: false,
        is_managed: true,
        is_of_nodes: false,
    },
    Served {
        interface: &wkssvc::INTERFACE,
        open: || Box::new(Stateless(|call, caller| wkssvc::call(call.opnum, &call.stub, caller))),
        asks_host: false,
        is_managed: true,
        is_of_nodes: false,
    },
    Served {
        interface: &netdfs::INTERFACE,
        open: || Box::new(Stateless(|call, caller| netdfs::call(call.opnum, &call.stub, caller))),
        asks_host: false,
        is_managed: true,
        is_of_nodes: false,
    },
    Served {
        interface: &fsrvp::INTERFACE,
        open: || Box::new(ShadowCopyCalls),
        asks_host: false,
        is_managed: false,
        is_of_nodes: false,
    },
    Served {
        interface: &fsrvp::INTERFACE_3,
        open: || Box::new(ShadowCopyCalls),
        asks_host: false,
        is_managed: false,
        is_of_nodes: false,
    },
    Served {
        interface: &mdssvc::INTERFACE,
        open: || Box::<SpotlightCalls>::default(),
        asks_host: false,
        is_managed: false,
        is_of_nodes: false,
    },
    Served {
        interface: &lsarpc::INTERFACE,
        open: || Box::<Lsarpc>::default(),
        asks_host: true,
        is_managed: false,
        is_of_nodes: false,
    },
    Served {
        interface: &dssp::INTERFACE,
        open: || {
            Box::new(Stateless(|call, caller| {
                dssp::call(call.opnum, &call.stub, || caller.primary_domain())
            }))
        },
        asks_host: false,
        is_managed: false,
        is_of_nodes: false,
    },
    Served {
        interface: &samr::INTERFACE,
        open: || Box::<Samr>::default(),
        asks_host: true,
        is_managed: false,
        is_of_nodes: false,
    },
    Served {
        interface: &epm::INTERFACE,
        open: || Box::<Epm>::default(),
        asks_host: false,
        is_managed: false,
        is_of_nodes: false,
    },
    Served {
        interface: &witness::INTERFACE,
        open: || Box::<OfAssociation>::default(),
        asks_host: false,
        is_managed: false,
        is_of_nodes: true,
    },
    #[cfg(feature = "test-hooks")]
    Served {
        interface: &test_events::INTERFACE,
        open: || Box::new(TestEvents),
        asks_host: false,
        is_managed: false,
        is_of_nodes: false,
    },
];

/// Returns all interfaces.
pub(super) fn interfaces() -> impl Iterator<Item = &'static Interface> {
    TABLE.iter().map(|row| row.interface)
}

/// Returns the interfaces that are served on the port of RPC; the endpoint mapper has its own. `is_node`
/// is true at a node of a cluster.
pub(super) fn on_tcp(is_node: bool) -> impl Iterator<Item = &'static Interface> {
    let offered = TABLE.iter().filter(move |row| is_node || !row.is_of_nodes);
    offered
        .map(|row| row.interface)
        .filter(|interface| interface.level_on_tcp.is_some() && *interface != &epm::INTERFACE)
}

/// Returns the row of the interface that is spoken on a pipe of this name.
pub(super) fn of_pipe(name: &str) -> Option<&'static Served> {
    let all: Vec<_> = interfaces().collect();
    let found = interface::of_pipe(&all, name)?;
    TABLE.iter().find(|row| row.interface == found)
}

/// Work that a call leaves for the server.
pub(super) enum Work {
    /// The change of the caller's own password: its answer waits for other threads.
    ChangePassword(PasswordChange),
    /// The answer comes when something happens.
    Await(Event),
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ChangePassword(_) => "ChangePassword",
            Self::Await(_) => "Await",
        })
    }
}

/// The outcome of the start of a call.
pub(super) enum Begun {
    Ended(Answer),
    Later(Work),
}

impl From<Started> for Begun {
    fn from(started: Started) -> Self {
        match started {
            Started::Ended(answer) => Self::Ended(answer),
            Started::Waits(event) => Self::Later(Work::Await(event)),
        }
    }
}

/// An interface on one association: its context handles.
pub(super) trait Answers: fmt::Debug + Send {
    /// Starts a call.
    fn begin(&mut self, call: &Call, caller: &Caller<'_>) -> Begun;

    /// Bytes that its state takes.
    fn bytes(&self) -> usize {
        0
    }
}

/// An interface without handles.
#[derive(Debug)]
struct Stateless(fn(&Call, &Caller<'_>) -> Answer);

impl Answers for Stateless {
    fn begin(&mut self, call: &Call, caller: &Caller<'_>) -> Begun {
        Begun::Ended(self.0(call, caller))
    }
}

impl Answers for Lsarpc {
    fn begin(&mut self, call: &Call, caller: &Caller<'_>) -> Begun {
        Begun::Ended(self.call(call.opnum, &call.stub, caller))
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Answers for Samr {
    fn begin(&mut self, call: &Call, caller: &Caller<'_>) -> Begun {
        if !PasswordChange::is_opnum(call.opnum) {
            return Begun::Ended(self.call(call.opnum, &call.stub, caller));
        }
        match PasswordChange::parse(call.opnum, &call.stub) {
            Ok(change) => Begun::Later(Work::ChangePassword(change)),
            Err(malformed) => Begun::Ended(Err(malformed.into())),
        }
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Answers for Epm {
    fn begin(&mut self, call: &Call, caller: &Caller<'_>) -> Begun {
        Begun::Ended(self.call(call.opnum, &call.stub, caller))
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

impl Answers for OfAssociation {
    fn begin(&mut self, call: &Call, caller: &Caller<'_>) -> Begun {
        let Caller { server, user, peer, .. } = *caller;
        self.begin(call, Registrant { server, user, peer }).into()
    }
}

impl Answers for ShadowCopyCalls {
    fn begin(&mut self, call: &Call, caller: &Caller<'_>) -> Begun {
        let Caller { server, user, address, identity, .. } = *caller;
        let may_back_up = manage::is_administrator(server, identity)
            || manage::is_backup_operator(server, identity);
        self.start(call, BackupCaller { server, user, address, may_back_up }).into()
    }
}

impl Answers for SpotlightCalls {
    fn begin(&mut self, call: &Call, caller: &Caller<'_>) -> Begun {
        let (server, identity) = (Arc::clone(caller.server), Arc::clone(caller.identity));
        let Caller { peer, is_sealed, .. } = *caller;
        self.start(call, Searcher { server, identity, peer, is_sealed }).into()
    }

    fn bytes(&self) -> usize {
        self.bytes()
    }
}

#[cfg(feature = "test-hooks")]
impl Answers for TestEvents {
    fn begin(&mut self, call: &Call, caller: &Caller<'_>) -> Begun {
        if !caller.server.settings().test_hooks {
            return Begun::Ended(Err(FaultStatus::OP_RNG_ERROR));
        }
        self.call(call.opnum, &call.stub).into()
    }
}

/// The interfaces of an association that were called, each with its state.
#[derive(Debug, Default)]
struct States(Vec<(&'static Interface, Box<dyn Answers>)>);

impl States {
    /// Returns the state of an interface, which its first call makes. None for one that is not
    /// served.
    fn of(&mut self, interface: &'static Interface) -> Option<&mut (dyn Answers + 'static)> {
        let at = match self.0.iter().position(|(known, _)| *known == interface) {
            Some(at) => at,
            None => {
                let row = TABLE.iter().find(|row| row.interface == interface)?;
                self.0.push((interface, (row.open)()));
                self.0.len() - 1
            }
        };
        self.0.get_mut(at).map(|(_, state)| &mut **state)
    }

    fn bytes(&self) -> usize {
        self.0.iter().map(|(_, state)| state.bytes()).sum()
    }
}

/// A call that waits for its work.
#[derive(Debug)]
pub(super) struct Unfinished {
    pub(super) call_id: u32,
    /// The level at which the call was protected.
    pub(super) level: AuthLevel,
    pub(super) work: Work,
}

/// An association of a client, with the interface that it calls.
#[derive(Debug)]
pub(super) struct Association {
    pub(super) endpoint: Endpoint,
    states: States,
    /// The calls whose work has not begun.
    pub(super) unfinished: Vec<Unfinished>,
    /// The calls that wait for events, on a pipe.
    pub(super) waits: PipeWaits,
    /// The authentication of the client, while it is under way.
    pub(super) exchange: Option<Box<Exchange>>,
}

impl Association {
    /// Makes the server's end of a pipe, on which all interfaces are spoken that have a name of
    /// the pipe.
    /// `has_keys` is true if the server has keys for tickets of Kerberos.
    pub(super) fn on_pipe(served: &Served, group: u32, has_keys: bool) -> Self {
        let others = served.on_its_pipe().map(|row| row.interface);
        let others = others.filter(|interface| *interface != served.interface);
        Self::new(Terms::of_pipe(served.interface, group).and(others).with_kerberos(has_keys))
    }

    /// Makes the server's end of a connection to the port of RPC, with the `interfaces` of it. Calls
    /// below `least_level` are refused, whatever their interface demands. `has_keys` is true if the
    /// server has keys for tickets of Kerberos.
    pub(super) fn on_port(
        interfaces: impl Iterator<Item = &'static Interface>,
        port: u16,
        group: u32,
        least_level: AuthLevel,
        has_keys: bool,
    ) -> Self {
        let terms = Terms::of_port(interfaces.collect(), port, group).with_kerberos(has_keys);
        Self::new(Terms { least_level, ..terms })
    }

    /// Makes the server's end of a connection to the port of the endpoint mapper.
    pub(super) fn on_mapper(port: u16, group: u32) -> Self {
        Self::new(Terms::of_port(vec![&epm::INTERFACE], port, group))
    }

    fn new(terms: Terms) -> Self {
        Self {
            endpoint: Endpoint::new(terms),
            states: States::default(),
            unfinished: Vec::new(),
            waits: PipeWaits::default(),
            exchange: None,
        }
    }

    /// Handles bytes of the client, as [`Endpoint::write`] does.
    pub(super) fn write<'a>(
        &mut self,
        bytes: &'a [u8],
        caller: &Caller<'_>,
    ) -> Result<&'a [u8], frevo_rpc::PipeError> {
        let Self { endpoint, states, unfinished, waits, .. } = self;
        let written = endpoint.write(bytes, &mut Running { states, unfinished, caller });
        // A cancelled call waits no longer.
        waits.keep(|call_id| endpoint.pending().any(|id| id == call_id));
        written
    }

    /// Takes the association out of a pipe, which has no other ends.
    pub(super) fn of(end: Box<dyn PipeEnd>) -> Option<Box<Self>> {
        (end as Box<dyn std::any::Any>).downcast().ok()
    }
}

impl PipeEnd for Association {
    fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    fn endpoint_mut(&mut self) -> &mut Endpoint {
        &mut self.endpoint
    }

    fn bytes(&self) -> usize {
        let unfinished = self.unfinished.len() * size_of::<Unfinished>();
        self.endpoint.bytes() + self.states.bytes() + unfinished
    }
}

/// An association that answers one caller.
struct Running<'a> {
    states: &'a mut States,
    unfinished: &'a mut Vec<Unfinished>,
    caller: &'a Caller<'a>,
}

impl Calls for Running<'_> {
    fn begin(&mut self, call: &Call) -> Outcome {
        let Some(state) = self.states.of(call.interface) else {
            return Outcome::Ended(Err(FaultStatus::UNK_IF));
        };
        match state.begin(call, self.caller) {
            Begun::Ended(answer) => Outcome::Ended(answer),
            Begun::Later(work) => {
                let (call_id, level) = (call.id, call.level);
                self.unfinished.push(Unfinished { call_id, level, work });
                Outcome::Pending
            }
        }
    }

    fn cancel(&mut self, call_id: u32) {
        self.unfinished.retain(|unfinished| unfinished.call_id != call_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The local security authority asks the host by whatever name of its pipe a client opens it.
    #[test]
    fn all_names_of_a_pipe_have_its_work() {
        let asks_host = |pipe: &str| of_pipe(pipe).unwrap().kind().asks_host;
        for pipe in ["lsarpc", "dssetup", "DSSETUP", "samr"] {
            assert!(asks_host(pipe), "{pipe}");
        }
        for pipe in ["srvsvc", "wkssvc", "netdfs", "epmapper"] {
            assert!(!asks_host(pipe), "{pipe}");
        }
        for served in TABLE {
            for pipe in served.interface.pipes {
                let kind = of_pipe(pipe).unwrap().kind();
                assert!(kind.asks_host || !served.asks_host, "{pipe}");
                assert!(kind.is_managed || !served.is_managed, "{pipe}");
            }
        }
    }

    /// The page that says to whom an interface is open has a row for each.
    #[test]
    fn the_document_has_each_interface() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rpc.md");
        let page = std::fs::read_to_string(page).unwrap();
        let rows: Vec<_> = page.lines().filter(|line| line.starts_with('|')).collect();
        for interface in interfaces() {
            // Tests alone call this one.
            #[cfg(feature = "test-hooks")]
            if *interface == test_events::INTERFACE {
                continue;
            }
            let is_named = interface
                .pipes
                .iter()
                .any(|pipe| rows.iter().any(|row| row.contains(&format!("`{pipe}`"))));
            assert!(is_named || interface.pipes.is_empty(), "{}", interface.name);
        }
    }
}
