//! Threads that sign, verify, seal and unseal large messages, so that these hold no core for long and
//! one connection can use several.
//!
//! AES-CMAC, AES-CCM and HMAC-SHA256 are chains: each block waits for the one before it, and a message
//! of 8 MiB takes 6 to 10 ms. A thread that is handed a message pays for the wake-up and for data that
//! is in another core's cache, so that it gains only for long ones, and only if it has a core to itself.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use frevo_crypto::{Cipher, SigningAlgorithm};
use frevo_net::{cores, file_io};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::base::ambient::{Ambient, CryptoPlace};
use crate::base::host;
use crate::base::limits::{
    CRYPTO_ELSEWHERE_BYTES_MIN, CRYPTO_GAINS_BYTES_MIN, CRYPTO_HELD_ALONE_MAX, CRYPTO_HELD_MAX,
    CRYPTO_JOBS, CRYPTO_LINED_UP, CRYPTO_THREADS,
};
use crate::base::pools::permits::acquire;
use crate::base::pools::threads::Threads;

/// The algorithm that a message is signed or sealed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// Of a signature.
    Signing(SigningAlgorithm),
    /// Of a seal.
    Sealing(Cipher),
}

/// Number of algorithms.
const ALGORITHMS: usize = 7;

impl Algorithm {
    const fn number(self) -> usize {
        match self {
            Self::Signing(algorithm) => algorithm.id() as usize,
            Self::Sealing(cipher) => 2 + cipher.id() as usize,
        }
    }

    /// True if each block of a message waits for the one before it.
    const fn is_chain(self) -> bool {
        use Cipher::{Aes128Ccm, Aes256Ccm};
        match self {
            Self::Signing(algorithm) => !matches!(algorithm, SigningAlgorithm::AesGmac),
            Self::Sealing(cipher) => matches!(cipher, Aes128Ccm | Aes256Ccm),
        }
    }
}

/// Where a message is signed, verified, sealed or unsealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    /// On the core, when its turn comes.
    Core,
    /// On the core, since no thread would be faster; before its turn if others are elsewhere.
    Beside,
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
    /// Permits of messages that were given to the threads.
    permits: Arc<Semaphore>,
    /// The measured time of each algorithm.
    paces: [Pace; ALGORITHMS],
    carried_out: AtomicU64,
}

impl CryptoThreads {
    /// Threads beside those of `cores` cores, none of which is made yet.
    pub(crate) fn new(cores: usize) -> Self {
        let most = cores.saturating_sub(1).clamp(1, CRYPTO_THREADS);
        Self {
            // It may be made while the core acts as a user.
            threads: Arc::new(Threads::new("crypto", most, host::begin_thread)),
            most,
            permits: Arc::new(Semaphore::new(CRYPTO_JOBS)),
            paces: std::array::from_fn(|_| Pace::default()),
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
    pub(crate) fn place(
        &self,
        ambient: &dyn Ambient,
        bytes: usize,
        algorithm: impl FnOnce() -> Option<Algorithm>,
        is_alone: impl FnOnce() -> bool,
    ) -> Site {
        match ambient.crypto_place(bytes) {
            CryptoPlace::Core => Site::Core,
            CryptoPlace::Thread => Site::Thread,
            CryptoPlace::After(time) => Site::After(time),
            // Real time and other threads must decide nothing in a simulation.
            CryptoPlace::Measured if bytes < CRYPTO_ELSEWHERE_BYTES_MIN || file_io::stays() => {
                Site::Core
            }
            CryptoPlace::Measured => algorithm()
                .map_or(Site::Core, |algorithm| self.measured_place(algorithm, bytes, is_alone)),
        }
    }

    fn measured_place(
        &self,
        algorithm: Algorithm,
        bytes: usize,
        is_alone: impl FnOnce() -> bool,
    ) -> Site {
        let time = self.paces.get(algorithm.number()).map(|pace| pace.time_of(algorithm, bytes));
        let time = time.unwrap_or_default();
        let gains = algorithm.is_chain() && bytes >= CRYPTO_GAINS_BYTES_MIN;
        // Nobody waits for the core, and no other work of its connection could be done meanwhile.
        if !gains && time <= CRYPTO_HELD_MAX || time <= CRYPTO_HELD_ALONE_MAX && is_alone() {
            return Site::Core;
        }
        if time > CRYPTO_HELD_MAX || self.is_free() { Site::Thread } else { Site::Beside }
    }

    /// True if a thread, and a core for it, have nothing to do.
    fn is_free(&self) -> bool {
        let busy = CRYPTO_JOBS.saturating_sub(self.permits.available_permits());
        busy < self.most && cores::idle().is_none_or(|idle| busy < idle)
    }

    /// Does `work` on a message of `bytes`, and notes its time.
    pub(crate) fn measured<T>(
        &self,
        bytes: usize,
        algorithm: impl FnOnce() -> Option<Algorithm>,
        work: impl FnOnce() -> T,
    ) -> T {
        let is_large = bytes >= CRYPTO_ELSEWHERE_BYTES_MIN;
        let algorithm = if is_large { algorithm() } else { None };
        let Some(pace) = algorithm.and_then(|algorithm| self.paces.get(algorithm.number())) else {
            return work();
        };
        let began = processor_time();
        let done = work();
        pace.note(bytes, processor_time().saturating_sub(began));
        done
    }

    /// Does `work` on another thread, which begins now if there is a permit. The future returns its
    /// result; None if it panicked.
    pub(crate) fn run<T, F>(
        self: &Arc<Self>,
        work: F,
    ) -> impl Future<Output = Option<T>> + use<T, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let begun = match Arc::clone(&self.permits).try_acquire_owned() {
            Ok(permit) => Ok(self.give(permit, work)),
            Err(_) => Err(work),
        };
        let threads = Arc::clone(self);
        async move {
            let answered = match begun {
                Ok(answered) => answered,
                Err(work) => {
                    let permit = acquire(&threads.permits).await.ok()?;
                    threads.give(permit, work)
                }
            };
            drop(threads);
            answered.await.ok()
        }
    }

    fn give<T: Send + 'static>(
        &self,
        permit: OwnedSemaphorePermit,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        self.carried_out.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let job = move || {
            let done = work();
            drop(permit);
            // The connection may have ended.
            drop(answer.send(done));
        };
        if let Err(job) = self.threads.give(Box::new(job)) {
            // There is no thread.
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

/// The processor time that an algorithm takes.
#[derive(Debug, Default)]
struct Pace {
    /// Nanoseconds for a mebibyte; 0 until it is measured.
    measured: AtomicUsize,
}

/// Nanoseconds for a mebibyte of a chain, until it is measured.
const CHAIN_NANOSECONDS: usize = 1_000_000;

impl Pace {
    /// The time for a message of `bytes`.
    fn time_of(&self, algorithm: Algorithm, bytes: usize) -> Duration {
        let nanoseconds = match self.measured.load(Ordering::Relaxed) {
            0 if algorithm.is_chain() => CHAIN_NANOSECONDS,
            measured => measured,
        };
        let all = (nanoseconds as u64).saturating_mul(bytes as u64) >> 20;
        Duration::from_nanos(all)
    }

    /// Lowers the time at once and raises it slowly: what slowed it down once counts little.
    fn note(&self, bytes: usize, took: Duration) {
        let taken = took.as_nanos().min(u128::from(u32::MAX)) as usize;
        let now = (taken << 20) / bytes.max(1);
        let before = self.measured.load(Ordering::Relaxed);
        let is_lower = before == 0 || now < before;
        let after = if is_lower { now } else { before + (now - before) / 8 };
        self.measured.store(after.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const CCM: Algorithm = Algorithm::Sealing(Cipher::Aes128Ccm);
    const GCM: Algorithm = Algorithm::Sealing(Cipher::Aes128Gcm);
    const MIB: usize = 1 << 20;

    #[derive(Debug)]
    struct Ordinary;

    impl Ambient for Ordinary {
        fn now(&self) -> frevo_wire::dtyp::FileTime {
            frevo_wire::dtyp::FileTime(0)
        }

        fn random(&self, _: &mut [u8]) {}
    }

    fn place(threads: &CryptoThreads, algorithm: Algorithm, bytes: usize) -> Site {
        threads.place(&Ordinary, bytes, || Some(algorithm), || false)
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
    fn a_message_goes_where_it_is_done_soonest() {
        let threads = Arc::new(CryptoThreads::new(2));
        assert_eq!(place(&threads, CCM, CRYPTO_GAINS_BYTES_MIN - 1), Site::Core);
        assert_eq!(place(&threads, CCM, CRYPTO_GAINS_BYTES_MIN), Site::Thread);
        assert_eq!(place(&threads, CCM, 8 * MIB), Site::Thread);
        assert_eq!(place(&threads, GCM, 8 * MIB), Site::Core);
        let (end, _held) = hold(&threads);
        assert_eq!(place(&threads, CCM, CRYPTO_GAINS_BYTES_MIN), Site::Beside, "none is free");
        assert_eq!(place(&threads, CCM, 8 * MIB), Site::Thread, "it would hold its core");
        drop(end);
    }

    #[test]
    fn what_holds_a_core_goes_whatever_its_algorithm() {
        let threads = Arc::new(CryptoThreads::new(2));
        let pace = |algorithm: Algorithm| &threads.paces[algorithm.number()];
        // A processor without instructions for AES.
        for _ in 0..64 {
            pace(GCM).note(MIB, CRYPTO_HELD_MAX * 2);
        }
        assert_eq!(place(&threads, GCM, MIB), Site::Thread);
        assert_eq!(place(&threads, GCM, CRYPTO_ELSEWHERE_BYTES_MIN), Site::Core);
        assert_eq!(place(&threads, GCM, CRYPTO_ELSEWHERE_BYTES_MIN - 1), Site::Core);
        // One that is fast.
        pace(CCM).note(8 * MIB, CRYPTO_HELD_MAX / 4);
        assert_eq!(place(&threads, CCM, 8 * MIB), Site::Thread, "a thread is free");
        let (end, _held) = hold(&threads);
        assert_eq!(place(&threads, CCM, 8 * MIB), Site::Beside, "it holds no core for long");
        drop(end);
        // A hiccup changes little.
        pace(CCM).note(8 * MIB, CRYPTO_HELD_MAX);
        assert!(pace(CCM).time_of(CCM, 8 * MIB) < CRYPTO_HELD_MAX);
        pace(CCM).note(usize::MAX, Duration::MAX);
    }

    #[test]
    fn a_message_that_nothing_waits_for_stays() {
        let threads = CryptoThreads::new(2);
        let alone = |bytes| threads.place(&Ordinary, bytes, || Some(CCM), || true);
        assert_eq!(alone(8 * MIB), Site::Core);
        threads.paces[CCM.number()].note(8 * MIB, CRYPTO_HELD_ALONE_MAX + Duration::from_millis(1));
        assert_eq!(alone(8 * MIB), Site::Thread, "it would hold its core for too long");
        assert_eq!(alone(4 * MIB), Site::Core);
    }

    #[test]
    fn every_algorithm_has_a_pace_of_its_own() {
        use frevo_crypto::SigningAlgorithm::{AesCmac, AesGmac, HmacSha256};
        let signing = [HmacSha256, AesCmac, AesGmac].map(Algorithm::Signing);
        let sealing = [1, 2, 3, 4].map(|id| Algorithm::Sealing(Cipher::from_id(id).unwrap()));
        let mut numbers: Vec<usize> = signing.iter().chain(&sealing).map(|a| a.number()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..ALGORITHMS).collect::<Vec<_>>());
    }

    #[test]
    fn as_many_are_given_as_there_are_permits_and_others_wait() {
        let threads = Arc::new(CryptoThreads::new(1));
        let (end, held) = hold(&threads);
        let others: Vec<_> = (1..CRYPTO_JOBS).map(|at| threads.run(move || at)).collect();
        assert_eq!(threads.carried_out(), CRYPTO_JOBS as u64);
        let waiting = threads.run(|| CRYPTO_JOBS);
        let mut waiting = Box::pin(waiting);
        let cx = &mut Context::from_waker(Waker::noop());
        assert_eq!(waiting.as_mut().poll(cx), Poll::Pending);
        assert_eq!(threads.carried_out(), CRYPTO_JOBS as u64, "it was not given");
        drop(end);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            held.await.unwrap();
            assert_eq!(waiting.await, Some(CRYPTO_JOBS));
            for (at, other) in others.into_iter().enumerate() {
                assert_eq!(other.await, Some(at + 1));
            }
        });
        assert_eq!(threads.carried_out(), CRYPTO_JOBS as u64 + 1);
        assert_eq!(threads.permits.available_permits(), CRYPTO_JOBS);
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
        assert_eq!(threads.permits.available_permits(), CRYPTO_JOBS);
    }

    #[test]
    fn threads_and_messages_of_a_connection_are_bounded() {
        for (cores, most, lined_up) in [(1, 1, 2), (2, 1, 2), (4, 3, 4), (8, 7, 8), (1000, 16, 8)] {
            let threads = CryptoThreads::new(cores);
            assert_eq!((threads.most, threads.lined_up_max()), (most, lined_up));
        }
    }
}
