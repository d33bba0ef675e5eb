//! The rules of compounds, MS-SMB2 3.3.5.2.7: which elements of a chain may run, and which
//! identifiers a related element takes from the one before it.

use frevo_wire::{Command, HeaderFlags, Status};

/// The treatment of a chain that mixes related and unrelated elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MixedStyles {
    /// An unrelated element begins a new chain. Windows: all servers; clients and smbtorture's
    /// `compound.invalid` tests rely on it.
    #[default]
    NewChain,
    /// Every element fails, as MS-SMB2 3.3.5.2.7 says.
    Refuse,
}

/// The treatment of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The element is the only one, an unrelated one, or the first of a related chain.
    /// [`Chain::begin`].
    Begin,
    /// The element is related to the one before it. [`Chain::inherit`].
    Continue,
    /// The element fails with this status without running.
    Fail(Status),
}

/// Judges the elements of one chain by command and flags, in order.
pub fn verdicts<I>(elements: I, mixed: MixedStyles) -> impl Iterator<Item = Verdict>
where
    I: Iterator<Item = (Command, HeaderFlags)> + Clone,
{
    let is_related = |flags: HeaderFlags| flags.contains(HeaderFlags::RELATED_OPERATIONS);
    let mut rest = elements.clone().skip(1);
    let is_chain = rest.clone().next().is_some();
    let first_related = rest.next().is_some_and(|(_, flags)| is_related(flags));
    let is_mixed = rest.any(|(_, flags)| is_related(flags) != first_related);
    let refuse_all = is_mixed && mixed == MixedStyles::Refuse;

    // `has_head` is true if the previous element ran, so that a related element may continue it.
    let mut has_head = false;
    elements.map(move |(command, flags)| {
        let verdict = if refuse_all {
            Verdict::Fail(Status::INVALID_PARAMETER)
        } else if is_chain && matches!(command, Command::NEGOTIATE | Command::SESSION_SETUP) {
            // Deviation: MS-SMB2 allows NEGOTIATE and SESSION_SETUP in a compound. No client sends
            // that, and it would be dangerous to run requests while their session is being made.
            Verdict::Fail(Status::INVALID_PARAMETER)
        } else if !is_related(flags) {
            Verdict::Begin
        } else if has_head {
            Verdict::Continue
        } else {
            // MS-SMB2 3.3.5.2.7.2: a compound must not begin with a related element. If it does,
            // this element and the related elements after it fail.
            Verdict::Fail(Status::INVALID_PARAMETER)
        };
        has_head = !matches!(verdict, Verdict::Fail(_));
        verdict
    })
}

/// The identifiers that a command needs and a related element can take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Needs {
    /// Needs a SessionId: all commands except NEGOTIATE, SESSION_SETUP and ECHO.
    pub session: bool,
    /// Needs a TreeId.
    pub tree: bool,
    /// Needs a FileId.
    pub file: bool,
}

/// The FileId of an element for the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOutcome<F> {
    /// None: the command neither contains nor generates one.
    None,
    /// None: the command generates one (CREATE) but failed.
    NotMade,
    /// The FileId that it contained or generated.
    Some(F),
}

/// The identifiers with which a related element runs. An identifier that it does not need, and the
/// one before it did not have, is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Inherited<F> {
    /// Replaces the header's SessionId.
    pub session_id: Option<u64>,
    /// Replaces the header's TreeId.
    pub tree_id: Option<u32>,
    /// Replaces the FileId in the body.
    pub file: Option<F>,
}

/// The result of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome<F> {
    /// The session that it used or made; None if its command needs none.
    pub session_id: Option<u64>,
    /// The tree connect that it used or made; None if its command needs none.
    pub tree_id: Option<u32>,
    /// Its FileId for the next element.
    pub file: FileOutcome<F>,
    /// The status of its response.
    pub status: Status,
}

/// The state of a related chain between its elements. `F` is the type of a FileId.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chain<F> {
    previous: Option<Outcome<F>>,
    /// The status with which all further related elements fail.
    failed: Option<Status>,
    /// True if the element that now ends did not run: it fails with the status of the one before,
    /// from which the later ones still take their identifiers.
    passed_on: bool,
}

impl<F: Copy> Default for Chain<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F: Copy> Chain<F> {
    /// Makes the state before the first element.
    pub const fn new() -> Self {
        Self { previous: None, failed: None, passed_on: false }
    }

    /// Begins an element of [`Verdict::Begin`].
    pub fn begin(&mut self) {
        *self = Self::new();
    }

    /// Returns the session of the element before, in which a related one is answered even if it
    /// fails without running.
    pub fn session_id(&self) -> Option<u64> {
        self.previous.as_ref().and_then(|previous| previous.session_id)
    }

    /// Returns the identifiers for a related element ([`Verdict::Continue`]), or the status with
    /// which it fails without running.
    ///
    /// MS-SMB2 3.3.5.2.7.2: if an element has no session, tree connect or FileId to take over, it
    /// and all later ones fail. A failure is passed on only to elements that need a FileId; a later
    /// CREATE runs.
    pub fn inherit(&mut self, needs: Needs) -> Result<Inherited<F>, Status> {
        if let Some(status) = self.failed {
            return Err(status);
        }
        if let Some(status) = self.handed_down().filter(|_| needs.file) {
            self.passed_on = true;
            return Err(status);
        }
        let inherited = self.resolve(needs);
        self.failed = inherited.err();
        inherited
    }

    /// Returns the failure of the element before, if it concerned a FileId.
    fn handed_down(&self) -> Option<Status> {
        let previous = self.previous.as_ref()?;
        let failed = match previous.file {
            FileOutcome::None => false,
            FileOutcome::Some(_) => is_error(previous.status),
            // A CREATE without a handle has failed, even if its status is only a warning such as
            // STOPPED_ON_SYMLINK.
            FileOutcome::NotMade => previous.status.0 >> 31 == 1,
        };
        failed.then_some(previous.status)
    }

    fn resolve(&self, needs: Needs) -> Result<Inherited<F>, Status> {
        let previous = self.previous.as_ref().ok_or(Status::INVALID_PARAMETER)?;
        if (needs.session && previous.session_id.is_none())
            || (needs.tree && previous.tree_id.is_none())
        {
            return Err(Status::INVALID_PARAMETER);
        }
        let file = match previous.file {
            FileOutcome::None | FileOutcome::NotMade if needs.file => {
                return Err(Status::INVALID_HANDLE);
            }
            FileOutcome::None | FileOutcome::NotMade => None,
            FileOutcome::Some(file) => Some(file),
        };
        Ok(Inherited { session_id: previous.session_id, tree_id: previous.tree_id, file })
    }

    /// Records the end of an element, whether it ran or not.
    pub fn end(&mut self, outcome: Outcome<F>) {
        if !core::mem::take(&mut self.passed_on) {
            self.previous = Some(outcome);
        }
    }
}

/// True for a status of error severity. After a warning such as NO_MORE_FILES the CLOSE of a chain
/// still runs.
const fn is_error(status: Status) -> bool {
    status.0 >> 30 == 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const R: HeaderFlags = HeaderFlags::RELATED_OPERATIONS;
    const U: HeaderFlags = HeaderFlags::EMPTY;
    const BEGIN: Verdict = Verdict::Begin;
    const CONTINUE: Verdict = Verdict::Continue;
    const BAD: Verdict = Verdict::Fail(Status::INVALID_PARAMETER);

    fn judge(flags: &[HeaderFlags], mixed: MixedStyles) -> Vec<Verdict> {
        verdicts(flags.iter().map(|flags| (Command::CREATE, *flags)), mixed).collect()
    }

    #[test]
    fn a_create_runs_after_a_failure_that_was_passed_on() {
        let file = Needs { session: true, tree: true, file: true };
        let create = Needs { file: false, ..file };
        let mut chain = Chain::<u64>::new();
        let status = Status::OBJECT_PATH_NOT_FOUND;
        chain.end(Outcome {
            session_id: Some(1),
            tree_id: Some(2),
            file: FileOutcome::NotMade,
            status,
        });
        for _ in 0..2 {
            assert_eq!(chain.inherit(file), Err(status));
            // An element that did not run has no tree connect; the chain must keep that of the
            // element before it.
            chain.end(Outcome {
                session_id: Some(1),
                tree_id: None,
                file: FileOutcome::None,
                status,
            });
        }
        let inherited = Inherited { session_id: Some(1), tree_id: Some(2), file: None };
        assert_eq!(chain.inherit(create), Ok(inherited));
        chain.end(Outcome {
            session_id: Some(1),
            tree_id: Some(2),
            file: FileOutcome::Some(7),
            status: Status::SUCCESS,
        });
        assert_eq!(chain.inherit(file).map(|inherited| inherited.file), Ok(Some(7)));
    }

    #[test]
    fn an_open_that_stopped_on_a_link_stops_what_comes_after() {
        let needs = Needs { session: true, tree: true, file: true };
        for (status, told) in [
            (Status::STOPPED_ON_SYMLINK, Status::STOPPED_ON_SYMLINK),
            (Status::ACCESS_DENIED, Status::ACCESS_DENIED),
            (Status::SUCCESS, Status::INVALID_HANDLE),
        ] {
            let mut chain = Chain::<u64>::new();
            let file = FileOutcome::NotMade;
            chain.end(Outcome { session_id: Some(1), tree_id: Some(2), file, status });
            assert_eq!(chain.inherit(needs), Err(told));
            assert_eq!(chain.inherit(needs), Err(told));
        }
    }

    #[test]
    fn plain_chains() {
        for mixed in [MixedStyles::NewChain, MixedStyles::Refuse] {
            assert_eq!(judge(&[], mixed), []);
            assert_eq!(judge(&[U], mixed), [BEGIN]);
            assert_eq!(judge(&[U, U, U], mixed), [BEGIN; 3]);
            assert_eq!(judge(&[U, R, R], mixed), [BEGIN, CONTINUE, CONTINUE]);
        }
    }

    #[test]
    fn related_to_nothing_fails_with_all_that_follow() {
        for mixed in [MixedStyles::NewChain, MixedStyles::Refuse] {
            assert_eq!(judge(&[R], mixed), [BAD]);
            assert_eq!(judge(&[R, R, R], mixed), [BAD; 3]);
        }
    }

    #[test]
    fn mixed_styles() {
        let judge = |flags: &[HeaderFlags]| {
            (judge(flags, MixedStyles::NewChain), judge(flags, MixedStyles::Refuse))
        };
        let (windows, paper) = judge(&[U, R, U, R]);
        assert_eq!(windows, [BEGIN, CONTINUE, BEGIN, CONTINUE]);
        assert_eq!(paper, [BAD; 4]);
        let (windows, paper) = judge(&[U, U, R]);
        assert_eq!(windows, [BEGIN, BEGIN, CONTINUE]);
        assert_eq!(paper, [BAD; 3]);
        // smbtorture's compound.invalid4 sends a related, a related and an unrelated element.
        // Windows runs the last one; the specification fails all.
        let (windows, paper) = judge(&[R, R, U]);
        assert_eq!(windows, [BAD, BAD, BEGIN]);
        assert_eq!(paper, [BAD; 3]);
    }

    #[test]
    fn negotiate_and_session_setup_only_alone() {
        for command in [Command::NEGOTIATE, Command::SESSION_SETUP] {
            let judge = |elements: &[(Command, HeaderFlags)]| {
                verdicts(elements.iter().copied(), MixedStyles::NewChain).collect::<Vec<_>>()
            };
            assert_eq!(judge(&[(command, U)]), [BEGIN]);
            assert_eq!(judge(&[(Command::ECHO, U), (command, U)]), [BEGIN, BAD]);
            let chain = [(command, U), (Command::TREE_CONNECT, R), (Command::ECHO, U)];
            assert_eq!(judge(&chain), [BAD, BAD, BEGIN]);
        }
    }

    const ALL: Needs = Needs { session: true, tree: true, file: true };
    const TREE: Needs = Needs { file: false, ..ALL };

    fn outcome(file: FileOutcome<u8>, status: Status) -> Outcome<u8> {
        Outcome { session_id: Some(1), tree_id: Some(2), file, status }
    }

    fn after(outcome: Outcome<u8>) -> Chain<u8> {
        let mut chain = Chain::new();
        chain.begin();
        chain.end(outcome);
        chain
    }

    #[test]
    fn ids_are_handed_on() {
        let mut chain = after(outcome(FileOutcome::Some(7), Status::SUCCESS));
        let all = Inherited { session_id: Some(1), tree_id: Some(2), file: Some(7) };
        assert_eq!(chain.inherit(ALL), Ok(all));
        assert_eq!(chain.inherit(TREE), Ok(all));
        chain.end(outcome(FileOutcome::Some(7), Status::NO_MORE_FILES));
        assert_eq!(chain.inherit(ALL), Ok(all));
    }

    #[test]
    fn after_echo_nothing_is_known() {
        let echo =
            Outcome { session_id: None, tree_id: None, file: FileOutcome::None, status: Status(0) };
        let mut chain = after(echo);
        assert_eq!(chain.inherit(TREE), Err(Status::INVALID_PARAMETER));
        // After a failure, all related elements fail until a new chain begins.
        chain.end(outcome(FileOutcome::Some(7), Status::SUCCESS));
        assert_eq!(chain.inherit(ALL), Err(Status::INVALID_PARAMETER));
        chain.begin();
        chain.end(outcome(FileOutcome::Some(7), Status::SUCCESS));
        assert!(chain.inherit(ALL).is_ok());
    }

    #[test]
    fn no_file_is_an_invalid_handle() {
        let mut chain = after(outcome(FileOutcome::None, Status::SUCCESS));
        assert!(chain.inherit(TREE).is_ok());
        assert_eq!(chain.inherit(ALL), Err(Status::INVALID_HANDLE));
        assert_eq!(chain.inherit(TREE), Err(Status::INVALID_HANDLE));
    }

    #[test]
    fn failures_are_handed_on_to_those_that_need_the_file() {
        for file in [FileOutcome::NotMade, FileOutcome::Some(7)] {
            let mut chain = after(outcome(file, Status::ACCESS_DENIED));
            assert!(chain.inherit(TREE).is_ok());
            assert_eq!(chain.inherit(ALL), Err(Status::ACCESS_DENIED));
            assert_eq!(chain.inherit(ALL), Err(Status::ACCESS_DENIED));
        }
    }

    #[test]
    fn nothing_before_is_an_invalid_parameter() {
        assert_eq!(Chain::<u8>::new().inherit(TREE), Err(Status::INVALID_PARAMETER));
    }
}
