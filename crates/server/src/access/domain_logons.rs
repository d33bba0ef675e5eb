//! NTLM for users of a domain: somebody else asks a domain controller, on threads that may wait.

use std::fmt;
use std::sync::{Arc, OnceLock};

use frevo_auth::{DomainLogon, DomainQuestion, Reason};
use frevo_net::file_io::run_blocking;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::base::limits::{DOMAIN_LOGON_TIMEOUT, DOMAIN_LOGONS};

/// A way to ask a domain controller about proofs of passwords.
pub trait DomainLogons: Send + Sync + fmt::Debug {
    /// Asks about a proof. It may block for as long as a controller takes; the server abandons the
    /// answer much earlier.
    ///
    /// # Errors
    /// [`Reason::DomainRefused`] if a controller has refused the user, [`Reason::DomainSilent`] if
    /// none has answered.
    fn check(&self, question: &DomainQuestion) -> Result<DomainLogon, Reason>;
}

/// The way that the server has, and the places for questions under way.
#[derive(Debug)]
pub(crate) struct DomainLogonSlot {
    way: OnceLock<Arc<dyn DomainLogons>>,
    places: Arc<Semaphore>,
}

impl Default for DomainLogonSlot {
    fn default() -> Self {
        Self { way: OnceLock::new(), places: Arc::new(Semaphore::new(DOMAIN_LOGONS)) }
    }
}

impl DomainLogonSlot {
    /// Sets the way. A second one is ignored.
    pub(crate) fn set(&self, way: Arc<dyn DomainLogons>) {
        let _ = self.way.set(way);
    }

    /// Asks. A question that is abandoned keeps its place until its answer comes.
    pub(crate) async fn ask(&self, question: Box<DomainQuestion>) -> Result<DomainLogon, Reason> {
        let silent = |why: &str| Reason::DomainSilent(String::from(why));
        let Some(way) = self.way.get().map(Arc::clone) else {
            return Err(silent("winbind is not used; restart the server"));
        };
        let places = Arc::clone(&self.places);
        let answer = timeout(DOMAIN_LOGON_TIMEOUT, async move {
            let place = places.acquire_owned().await.ok()?;
            let asked = run_blocking(move || {
                let _place = place;
                way.check(&question)
            });
            asked.await.ok()
        });
        match answer.await {
            Ok(Some(answer)) => answer,
            Ok(None) => Err(silent("an internal error")),
            Err(_) => Err(silent("winbind does not answer in time; check it: wbinfo --ping-dc")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::{Receiver, channel};
    use std::time::Duration;

    use super::*;

    /// Answers when it is told to.
    #[derive(Debug)]
    struct Slow(Mutex<Receiver<()>>);

    impl DomainLogons for Slow {
        fn check(&self, question: &DomainQuestion) -> Result<DomainLogon, Reason> {
            let _ = self.0.lock().unwrap().recv();
            Err(Reason::DomainRefused(question.user.clone()))
        }
    }

    fn question() -> Box<DomainQuestion> {
        Box::new(DomainQuestion {
            user: "ann".into(),
            domain: "A".into(),
            challenge: [0; 8],
            nt_response: vec![0; 16],
            lm_response: Vec::new(),
            domains: vec!["A".into()],
        })
    }

    #[tokio::test]
    async fn without_a_way_nobody_is_asked() {
        let slot = DomainLogonSlot::default();
        let reason = slot.ask(question()).await.unwrap_err();
        assert!(matches!(reason, Reason::DomainSilent(_)), "{reason}");
    }

    /// Questions that nobody answers take their places and no more, and each of them ends.
    #[tokio::test(start_paused = true)]
    async fn questions_are_bounded_in_number_and_time() {
        let (release, wait) = channel();
        let slot = Arc::new(DomainLogonSlot::default());
        slot.set(Arc::new(Slow(Mutex::new(wait))));
        let mut asked = tokio::task::JoinSet::new();
        for _ in 0..=DOMAIN_LOGONS {
            let slot = Arc::clone(&slot);
            asked.spawn(async move { slot.ask(question()).await });
        }
        while slot.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        // The runtime's paused clock does not advance by itself while blocking threads run, so the
        // test advances it beyond the timeout.
        tokio::time::advance(DOMAIN_LOGON_TIMEOUT + Duration::from_secs(1)).await;
        while let Some(answer) = asked.join_next().await {
            let reason = answer.unwrap().unwrap_err();
            assert!(reason.to_string().contains("in time"), "{reason}");
        }
        assert_eq!(slot.places.available_permits(), 0, "they are under way still");
        for _ in 0..DOMAIN_LOGONS {
            release.send(()).unwrap();
        }
        while slot.places.available_permits() < DOMAIN_LOGONS {
            tokio::task::yield_now().await;
        }
        release.send(()).unwrap();
        let reason = slot.ask(question()).await.unwrap_err();
        assert_eq!(reason, Reason::DomainRefused("ann".into()));
    }
}
