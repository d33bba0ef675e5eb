//! Impersonation: the credentials of one thread, not of the process.
//!
//! On Linux credentials belong to threads. The C library's calls change those of all threads at
//! once, so the system calls are made directly. A thread acts as a user with the user's id, group
//! and further groups as effective ones. Effective capabilities go with the effective user id 0 and
//! come back with it. The real and the saved id stay, so that no process of the user may signal
//! this one.
//!
//! Changing costs system calls. Within a [`Scope`] a thread stays the user it acted as last, until
//! another is needed or the scope ends: further work for that user costs nothing. Code within a
//! scope must not rely on the server's rights unless it asks for them ([`as_server`], [`settle`]).

use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, OnceLock};

use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

/// A user that a thread can act as.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    uid: Uid,
    gid: Gid,
    groups: Box<[Gid]>,
}

impl Credentials {
    /// Makes the credentials of a user with its groups; `groups` may contain the primary one. None
    /// for root, whom no permission restricts, and for the numbers that mean nobody.
    pub fn new(uid: u32, gid: u32, groups: &[u32]) -> Option<Self> {
        let is_number = |id: &u32| *id != u32::MAX;
        if uid == 0 || !is_number(&uid) || !is_number(&gid) || !groups.iter().all(is_number) {
            return None;
        }
        let groups = groups.iter().map(|id| Gid::from_raw(*id)).collect();
        Some(Self { uid: Uid::from_raw(uid), gid: Gid::from_raw(gid), groups })
    }

    /// Returns the user's number.
    pub const fn uid(&self) -> u32 {
        self.uid.as_raw()
    }

    /// Returns the number of the user's primary group.
    pub const fn gid(&self) -> u32 {
        self.gid.as_raw()
    }

    /// Makes this thread act as the user until the result is dropped.
    ///
    /// # Errors
    /// If the kernel refuses; the thread's credentials are then unchanged.
    pub fn assume(self: &Arc<Self>) -> Result<Assumed, Errno> {
        THREAD.with_borrow_mut(|thread| {
            let before = thread.wanted.clone();
            thread.become_(Some(self))?;
            thread.wanted = Some(Arc::clone(self));
            IS_ACTING.set(true);
            Ok(Assumed { before, _stays: PhantomData })
        })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("uid", &self.uid())
            .field("gid", &self.gid())
            .field("groups", &self.groups.len())
            .finish()
    }
}

/// Makes this thread act as the server until the result is dropped, for work that users may not do
/// themselves.
pub fn as_server() -> Assumed {
    THREAD.with_borrow_mut(|thread| {
        let before = thread.wanted.take();
        IS_ACTING.set(false);
        thread.restore();
        Assumed { before, _stays: PhantomData }
    })
}

/// Returns the user that this thread acts as; None for the server.
pub fn acting() -> Option<Arc<Credentials>> {
    THREAD.with_borrow(|thread| thread.wanted.clone())
}

/// True if this thread acts as a user. Asked often, also on threads that never do.
pub(crate) fn is_acting() -> bool {
    IS_ACTING.get()
}

/// Makes this thread the server again, if it still is the user that it acted as last.
pub fn settle() {
    THREAD.with_borrow_mut(|thread| {
        if thread.wanted.is_none() {
            thread.restore();
        }
    });
}

/// Prepares a new thread of the server: it stops acting as the user of the thread that made it, and
/// gives up CAP_FSETID. Each thread that serves clients calls this first.
///
/// With CAP_FSETID a write to a program leaves set-user-ID and set-group-ID set. A client could
/// then put its own code into a program that runs as another user.
pub fn begin_thread() {
    THREAD.with_borrow_mut(|_| {});
    give_up(CapabilitySet::FSETID);
}

/// Removes capabilities from this thread for good: also from the permitted set, which the kernel
/// copies to the effective set when the thread stops acting as a user.
fn give_up(capabilities: CapabilitySet) {
    let Ok(mut held) = rustix::thread::capabilities(None) else { return };
    if held.permitted.intersects(capabilities) {
        held.permitted.remove(capabilities);
        held.effective.remove(capabilities);
        held.inheritable.remove(capabilities);
        // A thread may always drop its capabilities, so this call does not fail.
        let _ = rustix::thread::set_capabilities(None, held);
    }
}

/// Makes a call with the group of a file, `gid`, as its group for file access, if this thread acts as
/// the server and the server is root: see [`begin_thread`].
///
/// The call is made on a thread of its own. The kernel takes no write(2) to an RDMA device from a
/// thread whose credentials were ever replaced since the device was opened, also by equal ones: a
/// core that serves clients of SMB Direct over a soft device would be slower from then on.
pub(crate) fn with_file_group<T: Send>(
    gid: u32,
    call: impl FnOnce() -> T + Send,
) -> Result<T, Errno> {
    settle();
    let needed = acting().is_none() && server().uid.is_root() && gid != u32::MAX;
    if !needed || gid == rustix::process::getegid().as_raw() {
        return Ok(call());
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("group".into());
        let thread = thread.spawn_scoped(scope, || {
            // If setfsgid fails, the kernel clears the file's set-group-ID bit in `call`, which is
            // safe. SAFETY: setfsgid changes an id of this thread, which ends after `call`, and
            // touches no memory.
            unsafe { libc::setfsgid(gid) };
            call()
        });
        let thread =
            thread.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        thread.join().map_err(|_panic| Errno::IO)
    })
}

/// Returns the user and group of the process when it impersonates nobody.
pub fn server_ids() -> (u32, u32) {
    let server = server();
    (server.uid.as_raw(), server.gid.as_raw())
}

/// Checks that this process may act as other users.
///
/// # Errors
/// The missing right, for logs.
pub fn check() -> Result<(), String> {
    if !server().uid.is_root() {
        return Err(String::from("only root can impersonate users"));
    }
    let held = rustix::thread::capabilities(None)
        .map_err(|errno| format!("cannot read the capabilities of this process: {errno}"))?;
    for (one, name) in
        [(CapabilitySet::SETUID, "CAP_SETUID"), (CapabilitySet::SETGID, "CAP_SETGID")]
    {
        if !held.effective.contains(one) {
            return Err(format!("this process lacks {name}, which impersonation needs"));
        }
    }
    // Having the capabilities does not prove that the kernel allows impersonation, so it is tried
    // with unused ids.
    let user = Credentials::new(u32::MAX - 1, u32::MAX - 1, &[]).map(Arc::new);
    let tried = user.map_or(Ok(()), |user| user.assume().map(drop));
    tried.map_err(|errno| format!("the kernel refuses impersonation: {errno}"))
}

/// A thread that acts as a user. Dropping it ends that. It stays on its thread.
#[must_use]
pub struct Assumed {
    before: Option<Arc<Credentials>>,
    _stays: PhantomData<*const ()>,
}

impl Drop for Assumed {
    fn drop(&mut self) {
        THREAD.with_borrow_mut(|thread| {
            thread.wanted = self.before.take();
            IS_ACTING.set(thread.wanted.is_some());
            match thread.wanted.clone() {
                // If the thread cannot return to the former user, it would continue with another
                // user's rights. So the process must end.
                Some(before) => {
                    if thread.become_(Some(&before)).is_err() {
                        die("cannot act as the user that it acted as before");
                    }
                }
                None if thread.scopes > 0 => {}
                None => thread.restore(),
            }
        });
    }
}

impl fmt::Debug for Assumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assumed").field("before", &self.before).finish()
    }
}

/// A span in which this thread stays the user that it acted as last.
#[must_use]
pub struct Scope(PhantomData<*const ()>);

impl Scope {
    /// Opens a scope. Scopes can be nested.
    pub fn open() -> Self {
        THREAD.with_borrow_mut(|thread| thread.scopes += 1);
        Self(PhantomData)
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        THREAD.with_borrow_mut(|thread| {
            thread.scopes -= 1;
            if thread.scopes == 0 && thread.wanted.is_none() {
                thread.restore();
            }
        });
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scope")
    }
}

/// The process's own credentials.
struct Server {
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

/// Returns the server's credentials. [`Thread::new`] calls it before its thread acts as a user.
fn server() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server {
        // The real ids stay those of the server while a thread acts as a user, because only
        // effective ids change.
        uid: rustix::process::getuid(),
        gid: rustix::process::getgid(),
        groups: rustix::process::getgroups().unwrap_or_default(),
    })
}

thread_local! {
    static IS_ACTING: Cell<bool> = const { Cell::new(false) };
    static THREAD: RefCell<Thread> = RefCell::new(Thread::new());
}

/// The state of this thread.
struct Thread {
    /// The user to act as.
    wanted: Option<Arc<Credentials>>,
    /// The user that it acts as now.
    actual: Option<Arc<Credentials>>,
    scopes: u32,
    /// Number of changes, for tests.
    changes: u64,
}

impl Thread {
    fn new() -> Self {
        let server = server();
        let mut thread = Self { wanted: None, actual: None, scopes: 0, changes: 0 };
        // The thread may have inherited the user of the thread that created it, and it cannot
        // impersonate while its real and effective ids differ.
        if server.uid.is_root() && !rustix::process::geteuid().is_root() {
            thread.leave();
        }
        thread
    }

    fn become_(&mut self, whom: Option<&Arc<Credentials>>) -> Result<(), Errno> {
        match (&self.actual, whom) {
            (None, None) => return Ok(()),
            (Some(now), Some(whom)) if Arc::ptr_eq(now, whom) || now == whom => return Ok(()),
            _ => {}
        }
        self.restore();
        if let Some(whom) = whom {
            self.changes += 1;
            // `actual` is set before the call, so that `restore` also undoes an `enter` that has
            // failed halfway.
            self.actual = Some(Arc::clone(whom));
            if let Err(errno) = enter(whom) {
                self.restore();
                return Err(errno);
            }
        }
        Ok(())
    }

    fn restore(&mut self) {
        if self.actual.is_some() {
            self.leave();
        }
    }

    fn leave(&mut self) {
        let server = server();
        self.changes += 1;
        // The user id is set first, because root's id restores the capabilities that the other
        // calls need.
        let left = set_thread_res_uid(None, server.uid, None)
            .and_then(|()| set_thread_res_gid(None, server.gid, None))
            .and_then(|()| set_thread_groups(&server.groups));
        if left.is_err() {
            die("cannot be the server again after it acted as a user");
        }
        self.actual = None;
    }
}

/// Takes the user's ids; the user id comes last, because the capabilities go with it.
fn enter(user: &Credentials) -> Result<(), Errno> {
    set_thread_groups(&user.groups)?;
    set_thread_res_gid(None, user.gid, None)?;
    set_thread_res_uid(None, user.uid, None)
}

/// Ends the process. A thread that is neither the server nor the right user must do nothing more,
/// and no other thread may take it for what it is not.
fn die(why: &str) -> ! {
    eprintln!("frevo: this thread {why}; the process ends");
    std::process::abort()
}

#[cfg(test)]
#[allow(clippy::print_stdout, reason = "a test that is skipped says so")]
mod tests {
    use super::*;

    fn user(uid: u32) -> Arc<Credentials> {
        Arc::new(Credentials::new(uid, uid + 1, &[uid + 1, uid + 2]).unwrap())
    }

    /// Returns the credentials that the kernel has for this thread.
    fn kernel() -> (u32, u32, Vec<u32>, u64) {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        // The four ids of a line are the real, effective, saved and file system id.
        let of = |ids: &[String]| {
            assert_eq!(ids[1], ids[3], "the file system's is the effective one");
            ids[1].parse::<u32>().unwrap()
        };
        let groups = line("Groups:").iter().map(|id| id.parse().unwrap()).collect();
        let capabilities = u64::from_str_radix(&line("CapEff:")[0], 16).unwrap();
        (of(&line("Uid:")), of(&line("Gid:")), groups, capabilities)
    }

    fn changes() -> u64 {
        THREAD.with_borrow(|thread| thread.changes)
    }

    /// True for root, which tests that act as other users need.
    fn is_root(test: &str) -> bool {
        let may = check();
        if let Err(why) = &may {
            println!("skipped: {test}: {why}");
        }
        may.is_ok()
    }

    #[test]
    fn impersonation_of_root_is_refused() {
        assert!(Credentials::new(0, 1, &[]).is_none());
        assert!(Credentials::new(u32::MAX, 1, &[]).is_none());
        assert!(Credentials::new(1, u32::MAX, &[]).is_none());
        assert!(Credentials::new(1, 1, &[u32::MAX]).is_none());
        assert!(Credentials::new(1, 0, &[0]).is_some());
    }

    #[test]
    fn a_thread_is_who_it_acts_as() {
        if !is_root("a_thread_is_who_it_acts_as") {
            return;
        }
        let before = kernel();
        assert_ne!(before.3, 0);
        {
            let _ann = user(5_000).assume().unwrap();
            assert_eq!(kernel(), (5_000, 5_001, vec![5_001, 5_002], 0));
            {
                let _bob = user(6_000).assume().unwrap();
                assert_eq!(kernel(), (6_000, 6_001, vec![6_001, 6_002], 0));
                let _server = as_server();
                assert_eq!(kernel(), before);
            }
            assert_eq!(kernel().0, 5_000);
            // A new thread inherits the impersonation of its creator until it calls `begin_thread`.
            std::thread::spawn(|| {
                assert_eq!(kernel().0, 5_000);
                begin_thread();
                assert_eq!((kernel().0, acting()), (0, None));
            })
            .join()
            .unwrap();
        }
        assert_eq!(kernel(), before);
    }

    #[test]
    fn the_same_user_again_costs_nothing_within_a_scope() {
        if !is_root("the_same_user_again_costs_nothing_within_a_scope") {
            return;
        }
        let before = kernel();
        let (ann, bob) = (user(5_000), user(6_000));
        let scope = Scope::open();
        drop(ann.assume().unwrap());
        let first = changes();
        for _ in 0..10 {
            drop(user(5_000).assume().unwrap());
            assert_eq!((changes(), acting()), (first, None));
        }
        assert_eq!(kernel().0, 5_000);
        drop(bob.assume().unwrap());
        assert_eq!(kernel().0, 6_000);
        settle();
        assert_eq!(kernel(), before);
        drop(bob.assume().unwrap());
        drop(as_server());
        assert_eq!(kernel(), before);
        drop(ann.assume().unwrap());
        drop(scope);
        assert_eq!(kernel(), before);
        // Without an outer scope the impersonation ends as soon as the guard of `assume` is
        // dropped.
        drop(ann.assume().unwrap());
        assert_eq!(kernel(), before);
    }

    /// X7: tests that a panic ends impersonation, within a scope or without.
    #[test]
    fn a_panic_ends_the_impersonation() {
        if !is_root("a_panic_ends_the_impersonation") {
            return;
        }
        let before = kernel();
        for is_scoped in [false, true] {
            let panicked = std::panic::catch_unwind(|| {
                let _scope = is_scoped.then(Scope::open);
                let _ann = user(5_000).assume().unwrap();
                let _server = as_server();
                let _bob = user(6_000).assume().unwrap();
                assert_eq!(kernel().0, 0, "this fails: it is bob");
            });
            assert!(panicked.is_err());
            assert_eq!((kernel(), acting()), (before.clone(), None));
        }
    }

    #[test]
    fn threads_act_as_different_users_at_the_same_time() {
        if !is_root("threads_act_as_different_users_at_the_same_time") {
            return;
        }
        let threads = (0..8).map(|number| {
            std::thread::spawn(move || {
                let own = user(7_000 + number);
                for _ in 0..200 {
                    let _own = own.assume().unwrap();
                    assert_eq!(kernel().0, 7_000 + number);
                }
                assert_eq!(kernel().0, 0);
            })
        });
        for thread in threads.collect::<Vec<_>>() {
            thread.join().unwrap();
        }
    }
}
