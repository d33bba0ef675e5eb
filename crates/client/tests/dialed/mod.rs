//! A scripted server, whoever is dialled, on a clock that does not wait.
#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test binary uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use frevo_client::internal::Dial;
use frevo_client::internal::Dialing;
use frevo_client::{Client, Error, Options, ServerName};
use frevo_net::transport::Stream;

use crate::evil::between::wire;
use crate::evil::{Act, Asked, Evil, Manners, Overheard, Script};

/// How long an operation may take, in the time of the test's clock.
const BOUND: Duration = Duration::from_secs(1_500);

/// Each connection is to such a server, with a number of its own.
pub struct ToEvil {
    manners: Arc<Manners>,
    script: Arc<Script>,
    pub overheard: Overheard,
    pub dialed: AtomicUsize,
}

impl ToEvil {
    pub fn new(
        manners: Manners,
        script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Self {
            manners: Arc::new(manners),
            script: Arc::new(script),
            overheard: Overheard::default(),
            dialed: AtomicUsize::new(0),
        })
    }
}

impl std::fmt::Debug for ToEvil {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ToEvil")
    }
}

impl Dial for ToEvil {
    fn dial<'a>(&'a self, _: &'a ServerName) -> Dialing<'a> {
        let evil = Evil {
            manners: Arc::clone(&self.manners),
            script: Arc::clone(&self.script),
            overheard: Arc::clone(&self.overheard),
            connection: self.dialed.fetch_add(1, Ordering::SeqCst),
        };
        Box::pin(async move { Ok(evil.stream()) })
    }
}

impl Evil {
    /// A connection to it.
    pub fn stream(self) -> Stream {
        let (ours, theirs) = wire();
        tokio::spawn(self.serve(theirs));
        ours
    }
}

/// Runs it on a clock that does not wait.
pub fn on_paused_clock<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(test)
}

pub async fn in_time<T>(
    name: &str,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(BOUND, call).await.unwrap_or_else(|_| panic!("{name} has no end"))
}

/// Tries one thing, and tells how many connections that took.
pub fn one_thing<T>(
    manners: Manners,
    options: Options,
    script: impl Fn(&Asked<'_>) -> Act + Send + Sync + 'static,
    thing: impl AsyncFnOnce(&Client) -> Result<T, Error>,
) -> (Result<T, Error>, usize) {
    on_paused_clock(async {
        let dial = ToEvil::new(manners, script);
        let options = options.recover_for(Duration::from_secs(5));
        let client = Client::with_dialer(options, Arc::clone(&dial) as Arc<dyn Dial>);
        let outcome = in_time("one thing", thing(&client)).await;
        (outcome, dial.dialed.load(Ordering::SeqCst))
    })
}
