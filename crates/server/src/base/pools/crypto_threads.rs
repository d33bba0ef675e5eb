//! Threads that sign, verify, seal and unseal large messages, so that these hold no core for long and
//! one connection can use several.
//!
//! AES-CMAC, AES-CCM and HMAC-SHA256 are chains: each block waits for the one before it, and a message
//! of 8 MiB takes 6 to 10 ms. [`Pace`] says when a thread gains; the threads here only carry out
//! [`Work`].

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frevo_net::permits::{Permit, Permits};
use frevo_net::{cores, file_io};
use frevo_proto::limits::CRYPTO_ELSEWHERE_BYTES_MIN;
use frevo_proto::protection::{Algorithm, Pace, Site, Work};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::base::ambient::{Ambient, CryptoPlace};
use crate::base::host;
use crate::base::limits::{CRYPTO_JOBS_PER_THREAD, CRYPTO_LINED_UP, CRYPTO_THREADS};
use crate::base::pools::threads::Threads;

/// The place where a message is signed, verified, sealed or unsealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CryptoSite {
    /// On the core, when its turn comes.
    Core,
    /// On the core, since no thread would be faster; before its turn if others are elsewhere.
    CoreAtOnce,
    /// On another thread.
    Thread,
    /// On the core, but after this time: see [`CryptoPlace::After`].
    After(Duration),
}

/// See the module's text.
pub(crate) struct CryptoThreads {
    threads: Arc<Threads>,
    /// Threads at a time.
    most: usize,
    /// Permits of messages that were given to the threads, in turns by account.
    permits: Permits,
    /// The measured time of each algorithm.
    paces: [Pace; Algorithm::COUNT],
    carried_out: AtomicU64,
}

impl CryptoThreads {
    /// Threads beside those of `cores` cores, none of which is made yet.
    pub(crate) fn new(cores: usize) -> Self {
        let most = cores.saturating_sub(1).clamp(1, CRYPTO_THREADS);
        Self {
            // `begin_thread` ends the impersonation that a new thread inherits from the core thread
            // that started it.
            threads: Arc::new(Threads::new("crypto", most, host::begin_thread)),
            most,
            permits: Permits::new(most * CRYPTO_JOBS_PER_THREAD),
            paces: std::array::from_fn(|_| Pace::new()),
            carried_out: AtomicU64::new(0),
        }
    }

    /// Messages of one connection that may be elsewhere, for one direction: enough to keep all threads
    /// busy. With another one the large buffers of a connection are more than the pool of its core
    /// keeps, and no rate was higher.
    pub(crate) fn lined_up_max(&self) -> usize {
        (self.most + 1).min(CRYPTO_LINED_UP)
    }

    /// Messages that were given to the threads.
    pub(crate) fn carried_out(&self) -> u64 {
        self.carried_out.load(Ordering::Relaxed)
    }

    /// The place for a message of `bytes`. If it is large, its algorithm is asked for, and whether it
    /// has a core to itself.
    pub(crate) fn site(
        &self,
        ambient: &dyn Ambient,
        bytes: usize,
        algorithm: impl FnOnce() -> Option<Algorithm>,
        is_alone: impl FnOnce() -> bool,
    ) -> CryptoSite {
        match ambient.crypto_place(bytes) {
            CryptoPlace::Core => return CryptoSite::Core,
            CryptoPlace::Thread => return CryptoSite::Thread,
            CryptoPlace::After(time) => return CryptoSite::After(time),
            CryptoPlace::Measured => {}
        }
        // In a simulation (`stays`), real time and other threads must not influence the choice, so
        // the work stays on the core thread.
        if bytes < CRYPTO_ELSEWHERE_BYTES_MIN || file_io::stays() {
            return CryptoSite::Core;
        }
        let Some(algorithm) = algorithm() else { return CryptoSite::Core };
        let Some(pace) = self.paces.get(algorithm.number()) else { return CryptoSite::Core };
        match pace.site_on_shared(algorithm, bytes, is_alone, || self.is_free()) {
            Site::Here => CryptoSite::Core,
            Site::HereAtOnce => CryptoSite::CoreAtOnce,
            Site::Elsewhere => CryptoSite::Thread,
        }
    }

    /// True if a thread, and a core for it, have nothing to do.
    fn is_free(&self) -> bool {
        let jobs = self.most * CRYPTO_JOBS_PER_THREAD;
        let busy = jobs.saturating_sub(self.permits.free());
        busy < self.most && cores::idle().is_none_or(|idle| busy < idle)
    }

    /// Does `work` on a message of `bytes`, and notes its time, unless that depends on the data.
    pub(crate) fn measured<T>(
        &self,
        bytes: usize,
        algorithm: impl FnOnce() -> Option<Algorithm>,
        work: impl FnOnce() -> T,
    ) -> T {
        let is_large = bytes >= CRYPTO_ELSEWHERE_BYTES_MIN;
        let algorithm = if is_large { algorithm() } else { None };
        let algorithm = algorithm.filter(|algorithm| algorithm.longest().is_none());
        match algorithm.and_then(|algorithm| self.paces.get(algorithm.number())) {
            None => work(),
            Some(pace) => pace.measured(bytes, CRYPTO_ELSEWHERE_BYTES_MIN, processor_time, work),
        }
    }

    /// Does `work` on this thread.
    pub(crate) fn run_here<W: Work>(&self, work: W) -> W::Done {
        let algorithm = work.algorithm();
        self.measured(work.bytes(), || algorithm, || work.run())
    }

    /// Has `work` done at `site`, which is not on the core. The future returns its result; None if it
    /// panicked.
    pub(crate) fn hand_over<W>(
        self: &Arc<Self>,
        site: CryptoSite,
        work: W,
    ) -> Pin<Box<dyn Future<Output = Option<W::Done>>>>
    where
        W: Work + Send + 'static,
        W::Done: Send,
    {
        let threads = Arc::clone(self);
        let job = move || threads.run_here(work);
        match site {
            CryptoSite::After(time) => Box::pin(async move {
                sleep(time).await;
                Some(job())
            }),
            _ => Box::pin(self.run(job)),
        }
    }

    /// Does `work` on another thread, which begins now if there is a permit. The future returns its
    /// result; None if it panicked.
    fn run<T, F>(self: &Arc<Self>, work: F) -> impl Future<Output = Option<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let begun = match self.permits.try_take() {
            Some(permit) => Ok(self.give(permit, work)),
            None => Err(work),
        };
        let threads = Arc::clone(self);
        async move {
            let answered = match begun {
                Ok(answered) => answered,
                Err(work) => {
                    let permit = threads.permits.take().await;
                    threads.give(permit, work)
                }
            };
            drop(threads);
            answered.await.ok()
        }
    }

    fn give<T: Send + 'static>(
        &self,
        permit: Permit,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        self.carried_out.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let job = move || {
            let done = work();
            drop(permit);
            // The send fails if the connection has ended meanwhile, and then nobody needs the
            // result.
            drop(answer.send(done));
        };
        if let Err(job) = self.threads.give(Box::new(job)) {
            // A thread could not be started, so the job runs on this thread.
            job();
        }
        answered
    }
}

impl Drop for CryptoThreads {
    fn drop(&mut self) {
        self.threads.end();
    }
}

/// Returns the processor time of this thread. Elapsed time counts other threads too, of which there are
/// many where messages are elsewhere.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use frevo_crypto::Cipher;
    use frevo_net::accounts::{self, Account};
    use frevo_proto::limits::CRYPTO_GAINS_BYTES_MIN;
    use frevo_proto::protection::Codec;

    use super::*;

    const CCM: Algorithm = Algorithm::Sealing(Cipher::Aes128Ccm);
    const MIB: usize = 1 << 20;

    #[derive(Debug)]
    struct Ordinary;

    impl Ambient for Ordinary {
        fn now(&self) -> frevo_wire::dtyp::FileTime {
            frevo_wire::dtyp::FileTime(0)
        }

        fn random(&self, _: &mut [u8]) {}
    }

    fn site(threads: &CryptoThreads, bytes: usize) -> CryptoSite {
        threads.site(&Ordinary, bytes, || Some(CCM), || false)
    }

    /// Keeps a thread busy until the sender is dropped.
    fn hold(
        threads: &Arc<CryptoThreads>,
    ) -> (mpsc::Sender<()>, impl Future<Output = Option<()>> + use<>) {
        let (end, ended) = mpsc::channel();
        let held = threads.run(move || {
            let _: Result<(), _> = ended.recv();
        });
        (end, held)
    }

    #[test]
    fn a_thread_that_is_busy_gets_only_what_would_hold_a_core() {
        let threads = Arc::new(CryptoThreads::new(2));
        assert_eq!(site(&threads, CRYPTO_GAINS_BYTES_MIN - 1), CryptoSite::Core);
        assert_eq!(site(&threads, CRYPTO_GAINS_BYTES_MIN), CryptoSite::Thread);
        let (end, _held) = hold(&threads);
        assert_eq!(site(&threads, CRYPTO_GAINS_BYTES_MIN), CryptoSite::CoreAtOnce, "none is free");
        assert_eq!(site(&threads, 8 * MIB), CryptoSite::Thread, "it would hold its core");
        drop(end);
        let unknown = threads.site(&Ordinary, 8 * MIB, || None, || false);
        assert_eq!(unknown, CryptoSite::Core, "nothing protects it");
    }

    /// Work of which a peer says how many bytes it takes.
    struct Told(Algorithm);

    impl Work for Told {
        type Done = ();

        fn bytes(&self) -> usize {
            8 * MIB
        }

        fn algorithm(&self) -> Option<Algorithm> {
            Some(self.0)
        }

        fn run(self) {}
    }

    /// Tests that a peer whose data is done soon cannot bring the slow data behind it onto a core.
    #[test]
    fn data_that_was_fast_says_nothing_on_what_comes_next() {
        let threads = CryptoThreads::new(2);
        for codec in Codec::ALL {
            for algorithm in [Algorithm::Expanding(codec), Algorithm::Compressing(codec)] {
                for is_alone in [false, true, false, true] {
                    for _ in 0..16 {
                        threads.run_here(Told(algorithm));
                    }
                    let site = threads.site(&Ordinary, 8 * MIB, || Some(algorithm), || is_alone);
                    assert_eq!(site, CryptoSite::Thread, "{algorithm:?}");
                }
            }
        }
        // Seals take as long for all data, and are measured.
        (0..16).for_each(|_| threads.run_here(Told(CCM)));
        let site = threads.site(&Ordinary, 8 * MIB, || Some(CCM), || true);
        assert_eq!(site, CryptoSite::Core);
    }

    #[test]
    fn as_many_are_given_as_there_are_permits_and_others_wait() {
        let threads = Arc::new(CryptoThreads::new(1));
        let (end, held) = hold(&threads);
        let others: Vec<_> =
            (1..CRYPTO_JOBS_PER_THREAD).map(|at| threads.run(move || at)).collect();
        assert_eq!(threads.carried_out(), CRYPTO_JOBS_PER_THREAD as u64);
        let waiting = threads.run(|| CRYPTO_JOBS_PER_THREAD);
        let mut waiting = Box::pin(waiting);
        let cx = &mut Context::from_waker(Waker::noop());
        assert_eq!(waiting.as_mut().poll(cx), Poll::Pending);
        assert_eq!(threads.carried_out(), CRYPTO_JOBS_PER_THREAD as u64, "it was not given");
        drop(end);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            held.await.unwrap();
            assert_eq!(waiting.await, Some(CRYPTO_JOBS_PER_THREAD));
            for (at, other) in others.into_iter().enumerate() {
                assert_eq!(other.await, Some(at + 1));
            }
        });
        assert_eq!(threads.carried_out(), CRYPTO_JOBS_PER_THREAD as u64 + 1);
        assert_eq!(threads.permits.free(), CRYPTO_JOBS_PER_THREAD);
    }

    /// Tests that the message of another account waits for those that were given, however many of the
    /// first one are in line.
    #[test]
    fn accounts_have_turns() {
        let threads = Arc::new(CryptoThreads::new(2));
        let accounts = [(); 2].map(|()| Arc::<Account>::default());
        let order = Arc::new(parking_lot::Mutex::new(Vec::new()));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let local = tokio::task::LocalSet::new();
        let (end, held) = hold(&threads);
        let work = |of: usize| {
            let (order, account) = (Arc::clone(&order), Arc::clone(&accounts[of]));
            let threads = Arc::clone(&threads);
            let mut done =
                Box::pin(async move { threads.run(move || order.lock().push(of)).await });
            local.spawn_local(std::future::poll_fn(move |cx| {
                accounts::for_account(Some(Arc::clone(&account)), || done.as_mut().poll(cx))
            }))
        };
        let all: Vec<_> = [0; 20].into_iter().chain([1, 1, 1]).map(work).collect();
        runtime.block_on(local.run_until(async {
            tokio::task::yield_now().await;
            drop(end);
            for one in all {
                one.await.unwrap();
            }
            held.await.unwrap();
        }));
        let order = order.lock();
        let first = order.iter().position(|of| *of == 1).unwrap();
        assert!(first <= CRYPTO_JOBS_PER_THREAD, "{order:?}");
        assert_eq!(order.len(), 23);
    }

    #[test]
    fn a_panic_loses_its_own_message_only() {
        let threads = Arc::new(CryptoThreads::new(2));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let lost = threads.run(|| -> u8 { panic!("on purpose, in a test") });
            assert_eq!(lost.await, None);
            assert_eq!(threads.run(|| 7).await, Some(7));
        });
        assert_eq!(threads.permits.free(), CRYPTO_JOBS_PER_THREAD);
    }

    #[test]
    fn threads_and_messages_of_a_connection_are_bounded() {
        for (cores, most, lined_up) in [(1, 1, 2), (2, 1, 2), (4, 3, 4), (8, 7, 8), (1000, 16, 8)] {
            let threads = CryptoThreads::new(cores);
            assert_eq!((threads.most, threads.lined_up_max()), (most, lined_up));
        }
    }
}
