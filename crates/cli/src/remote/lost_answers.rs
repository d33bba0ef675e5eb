//! Changes of names whose answers are lost with a connection: the server may have made them.
//!
//! A change is repeated only while its file is where it was: another program may have given the name to
//! another file meanwhile. It is told as a success only when that is certain.

use frevo_client::{Cause, Error, Metadata, Result, Share, Status};

/// How often a change is sent whose answers are lost.
const TRIES: u32 = 16;

/// The state of a change whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Done,
    NotDone,
    /// Other programs have changed the names, too.
    Unclear,
}

/// Repeats a change whose answer was lost, as long as `look` says that it was not made. An error of a
/// repetition for which `is_late` returns true may mean that the change was made after the last look.
async fn until_known<F, L>(
    change: impl Fn() -> F,
    is_late: impl Fn(&Error) -> bool,
    look: impl Fn() -> L,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
    L: Future<Output = Result<State>>,
{
    let mut lost = None;
    for _ in 0..TRIES {
        match change().await {
            Err(error) if matches!(error.cause(), Cause::Unknown) => lost = Some(error),
            Err(error) if lost.is_some() && is_late(&error) => {}
            done => return done,
        }
        match look().await? {
            State::Done => return Ok(()),
            State::NotDone => {}
            State::Unclear => break,
        }
    }
    lost.map_or(Ok(()), Err)
}

/// Returns true if both certainly are one file. A server that does not number its files cannot say so, and
/// numbers are given again soon after a file is gone.
fn is_one(one: &Metadata, other: &Metadata) -> bool {
    let key = |found: &Metadata| (found.file_id(), found.created());
    one.file_id() != 0 && key(one) == key(other)
}

/// Returns the file with this name, `None` if there is none.
async fn found(share: &Share, path: &str) -> Result<Option<Metadata>> {
    match share.lookup(path).await {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the state of the removal of `itself`, after which `there` has its name.
fn removal(itself: Option<&Metadata>, there: Option<&Metadata>) -> State {
    match there {
        None => State::Done,
        Some(there) if itself.is_none_or(|itself| is_one(itself, there)) => State::NotDone,
        Some(_) => State::Unclear,
    }
}

/// Returns the state of the renaming of `itself`, after which `there` has the old name and `target` the
/// new one.
fn renaming(itself: &Metadata, there: Option<&Metadata>, target: Option<&Metadata>) -> State {
    let is_it = |found: Option<&Metadata>| found.is_some_and(|found| is_one(itself, found));
    match (is_it(there), is_it(target)) {
        (true, _) => State::NotDone,
        (false, true) => State::Done,
        (false, false) => State::Unclear,
    }
}

/// Removes the file `itself`, or an empty directory that is not known closer.
pub(super) async fn removed<F>(
    share: &Share,
    path: &str,
    itself: Option<&Metadata>,
    remove: impl Fn() -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let look = || async move { Ok(removal(itself, found(share, path).await?.as_ref())) };
    until_known(remove, Error::is_not_found, look).await
}

/// Renames the file `itself`. Without its metadata the outcome may stay unknown.
pub(super) async fn renamed<F>(
    share: &Share,
    [from, to]: [&str; 2],
    itself: Option<&Metadata>,
    rename: impl Fn() -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let look = || async move {
        let Some(itself) = itself else { return Ok(State::Unclear) };
        let there = found(share, from).await?;
        let target = found(share, to).await?;
        Ok(renaming(itself, there.as_ref(), target.as_ref()))
    };
    until_known(rename, Error::is_not_found, look).await
}

/// Gives a file its name that was made under a name of its own, `part`, which no other program knows: a
/// part that is gone was renamed.
pub(super) async fn named<F>(
    share: &Share,
    [part, to]: [&str; 2],
    rename: impl Fn() -> F,
) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let look = || async move {
        match (found(share, part).await?, found(share, to).await?) {
            (Some(_), _) => Ok(State::NotDone),
            (None, Some(_)) => Ok(State::Done),
            (None, None) => Ok(State::Unclear),
        }
    };
    until_known(rename, Error::is_not_found, look).await
}

/// Makes a directory. One that is there after a lost answer was made.
pub(super) async fn made(share: &Share, path: &str) -> Result<()> {
    let is_there = |error: &Error| error.status() == Some(Status::OBJECT_NAME_COLLISION);
    let look = || async move {
        Ok(match found(share, path).await? {
            Some(found) if found.is_dir() => State::Done,
            Some(_) => State::Unclear,
            None => State::NotDone,
        })
    };
    until_known(|| share.create_dir(path), is_there, look).await
}

/// Makes a link where nothing is. One that was made without an answer is met by the repetition, as any
/// that is there.
pub(super) async fn linked<F>(link: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    until_known(link, |_| false, || async { Ok(State::NotDone) }).await
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn error(cause: impl Into<Cause>) -> Result<()> {
        Err(Error::new(cause, "remove", "smb://server/share/file"))
    }

    fn lost() -> Result<()> {
        error(Cause::Unknown)
    }

    /// Returns the outcome of a removal with these answers and states, and the count of answers that are
    /// left.
    async fn outcome(answers: Vec<Result<()>>, states: Vec<State>) -> (Result<()>, usize) {
        let (answers, states) = (RefCell::new(answers), RefCell::new(states));
        let change = || async { answers.borrow_mut().remove(0) };
        let look = || async { Ok(states.borrow_mut().remove(0)) };
        let known = until_known(change, Error::is_not_found, look).await;
        assert!(states.into_inner().is_empty(), "it looks after each lost answer");
        (known, answers.into_inner().len())
    }

    #[tokio::test]
    async fn a_change_is_repeated_until_its_outcome_is_known() {
        use State::{Done, NotDone, Unclear};
        let absent = || error(Status::OBJECT_NAME_NOT_FOUND);
        let refused = || error(Status::ACCESS_DENIED);
        let is_lost = |known: Result<()>| matches!(known.unwrap_err().cause(), Cause::Unknown);
        assert!(outcome(vec![Ok(())], vec![]).await.0.is_ok());
        assert!(outcome(vec![absent()], vec![]).await.0.unwrap_err().is_not_found());
        assert!(outcome(vec![lost()], vec![Done]).await.0.is_ok());
        assert!(outcome(vec![lost(), lost(), Ok(())], vec![NotDone, NotDone]).await.0.is_ok());
        assert!(
            outcome(vec![lost(), absent()], vec![NotDone, Done]).await.0.is_ok(),
            "it was late"
        );
        assert!(is_lost(outcome(vec![lost(), absent()], vec![NotDone, Unclear]).await.0));
        let (known, left) = outcome(vec![lost(), Ok(())], vec![Unclear]).await;
        assert_eq!((is_lost(known), left), (true, 1), "it is not repeated");
        let (known, left) = outcome(vec![lost(), refused(), Ok(())], vec![NotDone]).await;
        assert_eq!((known.unwrap_err().status(), left), (Some(Status::ACCESS_DENIED), 1));
        let tries = TRIES as usize;
        let answers = (0..=tries).map(|_| lost()).collect();
        let (known, left) = outcome(answers, vec![NotDone; tries]).await;
        assert_eq!((is_lost(known), left), (true, 1));
    }

    #[test]
    fn a_file_that_another_program_has_put_in_the_place_is_known() {
        let [one, other] = [1, 2].map(|id| Metadata::default().with_file_id(id));
        let nameless = Metadata::default();
        assert_eq!(removal(Some(&one), None), State::Done);
        assert_eq!(removal(Some(&one), Some(&one)), State::NotDone);
        assert_eq!(removal(Some(&one), Some(&other)), State::Unclear);
        assert_eq!(removal(Some(&nameless), Some(&nameless)), State::Unclear);
        assert_eq!(removal(None, Some(&one)), State::NotDone);
        let of = |there, target| renaming(&one, there, target);
        assert_eq!(of(Some(&one), None), State::NotDone);
        assert_eq!(of(Some(&one), Some(&other)), State::NotDone);
        assert_eq!(of(None, Some(&one)), State::Done);
        assert_eq!(of(Some(&other), Some(&one)), State::Done, "the old name was given again");
        assert_eq!(of(None, Some(&other)), State::Unclear, "that was there before");
        assert_eq!(of(None, None), State::Unclear);
        assert_eq!(renaming(&nameless, Some(&nameless), None), State::Unclear);
    }
}
