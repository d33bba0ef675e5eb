//! The paths to a disk, of which some may not answer.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::fault::FenceFault;

/// The paths that are asked by threads. The kernel may hold a thread up for as long as it tries a path, so
/// a path that has not answered yet is not asked again.
#[derive(Debug, Clone, Default)]
pub(super) struct Paths {
    busy: Arc<Mutex<BTreeSet<PathBuf>>>,
}

/// The answers of paths, in the order in which they come.
#[derive(Debug)]
pub(super) struct Answers<T> {
    from: Receiver<Result<T, FenceFault>>,
    begun: Instant,
    patience: Patience,
    /// The last fault of a path.
    fault: FenceFault,
}

/// The time for answers of paths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Until the first good answer.
    pub(super) first: Duration,
    /// For all, if there is a good one.
    pub(super) all: Duration,
}

impl Paths {
    /// Asks all paths at once.
    pub(super) fn ask<T: Send + 'static>(
        &self,
        disk: &str,
        paths: &[PathBuf],
        patience: Patience,
        question: impl Fn(&Path) -> Result<T, FenceFault> + Clone + Send + 'static,
    ) -> Answers<T> {
        let (sender, from) = channel();
        for path in paths {
            let is_free = self.busy.lock().insert(path.clone());
            if !is_free {
                continue;
            }
            let (busy, sender, question) =
                (Arc::clone(&self.busy), sender.clone(), question.clone());
            let asked = path.clone();
            let thread = std::thread::Builder::new().spawn(move || {
                let answer = question(&asked);
                busy.lock().remove(&asked);
                // The one that asked may have gone on.
                let _ = sender.send(answer);
            });
            if thread.is_err() {
                self.busy.lock().remove(path);
            }
        }
        let fault = FenceFault(format!("no path to {disk} answers"));
        Answers { from, begun: Instant::now(), patience, fault }
    }
}

impl<T> Answers<T> {
    /// All good answers, at least one.
    pub(super) fn all(mut self) -> Result<Vec<T>, FenceFault> {
        let mut good = Vec::new();
        while let Some(answer) = self.next(!good.is_empty()) {
            good.push(answer);
        }
        if good.is_empty() { Err(self.fault) } else { Ok(good) }
    }

    /// Does an act by the first path by which it succeeds.
    pub(super) fn first(
        mut self,
        mut act: impl FnMut(T) -> Result<(), FenceFault>,
    ) -> Result<(), FenceFault> {
        let mut has_one = false;
        while let Some(answer) = self.next(has_one) {
            has_one = true;
            match act(answer) {
                Ok(()) => return Ok(()),
                Err(fault) => self.fault = fault,
            }
        }
        Err(self.fault)
    }

    /// The next good answer. None if no path is asked any more, or none answers in time.
    fn next(&mut self, has_one: bool) -> Option<T> {
        let patience = if has_one { self.patience.all } else { self.patience.first };
        loop {
            let rest = patience.saturating_sub(self.begun.elapsed());
            match self.from.recv_timeout(rest).ok()? {
                Ok(answer) => return Some(answer),
                Err(fault) => self.fault = fault,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience =
        Patience { first: Duration::from_secs(20), all: Duration::from_millis(200) };

    fn paths() -> [PathBuf; 3] {
        ["good", "bad", "dead"].map(PathBuf::from)
    }

    /// A question that a dead path answers when the test ends.
    fn question(
        dead: &Arc<Mutex<()>>,
    ) -> impl Fn(&Path) -> Result<PathBuf, FenceFault> + Clone + use<> {
        let dead = Arc::clone(dead);
        move |path: &Path| match path.to_str() {
            Some("bad") => Err(FenceFault("bad".into())),
            Some("dead") => {
                drop(dead.lock());
                Ok(path.to_owned())
            }
            _ => Ok(path.to_owned()),
        }
    }

    #[test]
    fn a_path_that_does_not_answer_is_left_out() {
        let (paths, asked) = (paths(), Paths::default());
        let dead = Arc::new(Mutex::new(()));
        let held = dead.lock();
        let good = [PathBuf::from("good")];
        for _ in 0..3 {
            let begun = Instant::now();
            let answers = asked.ask("disk", &paths, PATIENCE, question(&dead));
            assert_eq!(answers.all().unwrap(), good);
            assert!(begun.elapsed() < Duration::from_secs(10));
            assert!(asked.busy.lock().contains(Path::new("dead")), "one thread waits for it");
        }
        drop(held);
        while !asked.busy.lock().is_empty() {
            std::thread::yield_now();
        }
        let all = asked.ask("disk", &paths, PATIENCE, question(&dead)).all().unwrap();
        assert_eq!(all.len(), 2);
    }

    #[test]
    fn an_act_is_done_by_the_first_path_that_can() {
        let (paths, asked) = (paths(), Paths::default());
        let dead = Arc::new(Mutex::new(()));
        let held = dead.lock();
        let begun = Instant::now();
        let ask = || asked.ask("disk", &paths, PATIENCE, question(&dead));
        assert_eq!(ask().first(|_| Ok(())), Ok(()));
        let fault = ask().first(|_| Err(FenceFault("no".into()))).unwrap_err();
        assert!(["no", "bad"].contains(&fault.0.as_str()), "{fault}");
        assert!(begun.elapsed() < Duration::from_secs(10));
        drop(held);
        let none = asked.ask("disk", &[], PATIENCE, question(&dead)).all().unwrap_err();
        assert_eq!(none.0, "no path to disk answers");
    }
}
