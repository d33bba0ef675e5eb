//! Locks of processes and of open files.

use super::*;
use crate::node::Range;
use crate::volume::Caller;

#[test]
fn locks_are_processes_here_and_opens_there() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let (a, b) = (one.make("f").await, two.take("f", libc::O_RDWR).await);
        let lock = |owner, start, last| Range { owner, pid: 7, start, last, exclusive: true };
        one.setlk(a, lock(1, 10, 19), None).await.unwrap();
        // The owner 1 may lock again, but neither another owner on this mount nor another client
        // may.
        one.setlk(a, lock(1, 15, 30), None).await.unwrap();
        assert_eq!(one.setlk(a, lock(2, 12, 12), None).await, Err(Errno::EAGAIN));
        assert_eq!(two.setlk(b, lock(1, 30, 30), None).await, Err(Errno::EAGAIN));
        assert_eq!(one.getlk(a, lock(2, 0, 99)).await.unwrap().unwrap().pid, 7);
        assert!(two.getlk(b, lock(9, 12, 12)).await.unwrap().is_some());
        assert!(two.getlk(b, lock(9, 31, 40)).await.unwrap().is_none());
        one.unlock(a, lock(1, 15, 16)).await.unwrap();
        two.setlk(b, lock(1, 15, 16), None).await.unwrap();
        assert_eq!(two.setlk(b, lock(1, 17, 17), None).await, Err(Errno::EAGAIN));
        // The waiting client gets the lock when the owner's file is closed (flush).
        let (waited, ()) =
            tokio::join!(two.setlk(b, lock(1, 17, 17), Some(Caller::new(0))), async {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                one.flush(a, 1).await.unwrap();
            });
        waited.unwrap();
        two.flush(b, 1).await.unwrap();
        one.setlk(a, lock(1, 0, 99), None).await.unwrap();
        one.close(a).await;
        two.close(b).await;
    });
}

#[test]
fn who_waits_for_a_lock_is_told_when_it_is_all_over() {
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        let lock = |owner| Range::of(owner, 7, 0..=9, libc::F_WRLCK);
        one.setlk(handle, lock(1), None).await.unwrap();
        let waits = one.setlk(handle, lock(2), Some(Caller::new(0)));
        let over = async {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            one.settle().await;
        };
        let both = async { tokio::join!(waits, over).0 };
        let found = tokio::time::timeout(std::time::Duration::from_secs(5), both).await;
        assert_eq!(found.expect("not for ever"), Err(Errno::EBADF));
    });
}

#[test]
fn who_waits_for_a_lock_ends_when_he_is_told_to() {
    in_world(async |world| {
        let one = plain(world).await;
        let handle = one.make("f").await;
        let lock = |owner| Range::of(owner, 7, 0..=9, libc::F_WRLCK);
        one.setlk(handle, lock(1), None).await.unwrap();
        // The child process acts as the program that waits for the lock, so the signals are sent to
        // it.
        let mut waiter = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = waiter.id();
        let stop = |signal: &str| {
            std::process::Command::new("kill").args([signal, &pid.to_string()]).status().unwrap()
        };
        stop("-STOP");
        let waits = one.setlk(handle, lock(2), Some(Caller::new(pid)));
        let found = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            stop("-TERM");
        };
        let both = async { tokio::join!(waits, found).0 };
        let ended = tokio::time::timeout(std::time::Duration::from_secs(10), both).await;
        waiter.kill().unwrap();
        waiter.wait().unwrap();
        assert_eq!(ended.expect("not for ever"), Err(Errno::EINTR));
        // The whole file is locked through a read-only handle, which works because the mount has
        // another handle that can write.
        one.unlock(handle, lock(1)).await.unwrap();
        let reader = one.take("f", libc::O_RDONLY).await;
        let whole = Range::of(3, 7, 0..=i64::MAX as u64, libc::F_WRLCK);
        one.setlk(reader, whole, None).await.unwrap();
        one.write(handle, 0, b"written").await.unwrap();
        one.fsync(handle).await.unwrap();
        assert_eq!(one.setlk(handle, lock(2), None).await, Err(Errno::EAGAIN));
        one.close(reader).await;
        one.setlk(handle, lock(2), None).await.unwrap();
        one.close(handle).await;
    });
}

#[test]
fn a_lock_goes_with_the_open_file_that_it_was_taken_through() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let first = one.make("f").await;
        let lock = |owner| Range::of(owner, 7, 0..=9, libc::F_WRLCK);
        // In the first round another handle of the file stays open; in the second round `handle` is
        // the only one.
        for beside in [true, false] {
            let handle = one.take("f", libc::O_RDWR).await;
            let other = two.take("f", libc::O_RDWR).await;
            one.setlk(handle, lock(1), None).await.unwrap();
            assert_eq!(two.setlk(other, lock(1), None).await, Err(Errno::EAGAIN));
            if !beside {
                one.close(first).await;
            }
            // The handle is closed without an unlock by the owner of the lock; the lock must not
            // stay on the server.
            one.close(handle).await;
            let handle = one.take("f", libc::O_RDWR).await;
            one.setlk(handle, lock(2), None).await.unwrap();
            one.unlock(handle, lock(2)).await.unwrap();
            two.setlk(other, lock(1), None).await.unwrap();
            two.close(other).await;
            one.close(handle).await;
        }
    });
}

#[test]
fn a_lock_that_cannot_be_unlocked_keeps_no_other() {
    in_world(async |world| {
        let (one, two) = (plain(world).await, plain(world).await);
        let handle = one.make("f").await;
        let beside = one.take("f", libc::O_RDWR).await;
        let other = two.take("f", libc::O_RDWR).await;
        let lock = |start| Range::of(1, 7, start..=start + 9, libc::F_WRLCK);
        let all = Range::of(1, 7, 0..=99, libc::F_WRLCK);
        for start in [0, 20, 40] {
            one.setlk(handle, lock(start), None).await.unwrap();
        }
        // One lock is released without the mount's knowledge. So the mount's next lock and unlock
        // of that range fail, but all other locks must still be released.
        let file = one.writer(&one.node_of("f")).unwrap();
        file.unlock(0, 10).await.unwrap();
        assert!(one.setlk(handle, all, None).await.is_err());
        assert_eq!(two.setlk(other, lock(40), None).await, Err(Errno::EAGAIN));
        file.unlock(20, 10).await.unwrap();
        assert!(one.unlock(handle, all).await.is_err());
        two.setlk(other, all, None).await.unwrap();
        for handle in [handle, beside] {
            one.close(handle).await;
        }
        two.close(other).await;
    });
}

#[test]
fn a_handle_that_was_closed_meanwhile_gets_no_lock() {
    in_world(async |world| {
        let one = plain(world).await;
        let beside = one.make("f").await;
        one.close(beside).await;
        let (beside, handle) =
            (one.take("f", libc::O_RDONLY).await, one.take("f", libc::O_RDONLY).await);
        let node = one.node_of("f");
        let lock = |owner| Range::of(owner, 7, 0..=9, libc::F_WRLCK);
        // The lock needs an Open for writing. While `setlk` waits for it, the caller is killed.
        let turn = node.opening.lock().await;
        let volume = Arc::clone(&one);
        let locking = tokio::spawn(async move { volume.setlk(handle, lock(1), None).await });
        tokio::task::yield_now().await;
        let volume = Arc::clone(&one);
        let released = tokio::spawn(async move { volume.release(handle).await });
        while one.handle(handle).is_ok() {
            tokio::task::yield_now().await;
        }
        drop(turn);
        assert_eq!(locking.await.unwrap(), Err(Errno::EBADF));
        released.await.unwrap();
        one.setlk(beside, lock(2), None).await.unwrap();
        one.close(beside).await;
    });
}
