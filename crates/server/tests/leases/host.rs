//! Changes by other programs on the host break the caches of clients.

use std::io::{Read as _, Write as _};
use std::process::{Command as Program, Stdio};

use tokio::time::timeout;

use super::*;

/// Another program.
fn host(world: &World, script: &str) {
    let ran = Program::new("sh").arg("-c").arg(script).current_dir(world.dir.path()).status();
    assert!(ran.unwrap().success());
}

/// True where this kernel and sandbox let a process watch.
fn is_possible() -> bool {
    let test = r"import ctypes,sys; sys.exit(ctypes.CDLL(None).fanotify_init(0x203, 0) < 0)";
    let can = Program::new("python3").args(["-c", test]).status().expect("python3").success();
    if !can {
        println!("skipped: nobody may watch a file system here (fanotify_init)");
    }
    can
}

/// The kernel's lease that a program has on the file is broken, and the request that opens the
/// file waits for it, no other.
#[test]
fn a_create_waits_for_the_lease_of_another_program() {
    in_world(async |world| {
        world.file("f", "before");
        let script = "import fcntl,os,signal,sys\n\
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGIO})\n\
            fd = os.open('f', os.O_RDWR)\n\
            try: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n\
            except OSError as why: print(why, file=sys.stderr); sys.exit(77)\n\
            print('ready', flush=True)\n\
            signal.sigwait({signal.SIGIO})\n\
            print('asked', flush=True)\n\
            sys.stdin.readline()\n";
        let mut program = Program::new("python3");
        let program = program.args(["-c", script]).current_dir(world.dir.path());
        let program = program.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = program.spawn().unwrap();
        let mut line = [0; 6];
        if holder.stdout.as_mut().unwrap().read_exact(&mut line).is_err() {
            assert_eq!(holder.wait().unwrap().code(), Some(77), "it ended before it had a lease");
            println!("skipped: a_create_waits_for_the_lease_of_another_program: no leases here");
            return;
        }
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let draft = mine.put(Want::existing("f").draft());
        let waiting = one.send(vec![draft], mine.via()).await[0];
        // While one request waits for the program to give up its lease, the connection serves
        // another file.
        one.open_file(&mine, &Want::file("g")).await;
        holder.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        assert_eq!(&line, b"asked\n");
        let mut reply = std::pin::pin!(one.final_reply(waiting));
        let early = timeout(Duration::from_millis(100), reply.as_mut()).await;
        assert!(early.is_err(), "answered while the program holds its lease");
        holder.stdin.take().unwrap().write_all(b"go on\n").unwrap();
        reply.await.ok();
        assert!(holder.wait().unwrap().success());
    });
}

#[test]
fn another_program_that_changes_a_file_breaks_what_is_cached_of_it() {
    if !is_possible() {
        return;
    }
    in_world(async |world| {
        world.file("f", "before");
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        for (script, held, left) in [
            ("echo more >> f", R, NONE),
            ("echo anew > f", rh(), NONE),
            ("truncate -s 3 f", rwh(), NONE),
            ("chmod 640 f", R, NONE),
            ("touch -d 2020-01-01 f", rh(), NONE),
            ("mv f g && mv g f", rh(), R),
            ("ln f h && rm h", rwh(), NONE),
        ] {
            let got = one.on(&mine, with_lease(&Want::existing("f"), key(1), held)).await;
            assert_eq!(lease(&got).lease.lease_state, held);
            // A client's own write must not break its lease. The script's change must.
            let file = files::file_id(&got);
            one.on(&mine, write_draft(file, 0, b"own")).await.ok();
            one.expect_silence(Duration::from_millis(50)).await;
            host(world, script);
            let told = lease_notification(&mut one).await;
            let states = (told.current_lease_state, told.new_lease_state);
            assert_eq!(states, (held, left), "{script}");
            if held != R {
                assert_eq!(told.flags, LeaseBreakFlags::ACK_REQUIRED);
                one.on(&mine, lease_ack(key(1), left)).await.ok();
            }
            one.close(&mine, file).await;
            // The host reports the script's last change with a delay. Without the pause the report
            // would count for the next case.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        // No client caches the file now, so the server does not watch it and sends no break.
        let file = one.open_file(&mine, &Want::existing("f")).await;
        host(world, "echo more >> f");
        one.expect_silence(Duration::from_millis(50)).await;
        one.close(&mine, file).await;
    });
}

#[test]
fn what_is_read_after_the_break_is_what_the_program_wrote() {
    if !is_possible() {
        return;
    }
    in_world(async |world| {
        world.file("f", "before");
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let got = one.on(&mine, with_oplock(&Want::existing("f"), OplockLevel::BATCH)).await;
        assert_eq!(level(&got), OplockLevel::BATCH);
        let file = files::file_id(&got);
        host(world, "printf after > f");
        let Notification::Oplock(told) = notification(&mut one).await else { panic!("a lease") };
        assert_eq!((told.oplock_level, told.file_id), (OplockLevel::NONE, file));
        one.on(&mine, oplock_ack(file, OplockLevel::NONE)).await.ok();
        assert_eq!(one.read(&mine, file, 0, 64).await, b"after");
    });
}

#[test]
fn a_file_is_watched_only_while_it_is_cached() {
    if !is_possible() {
        return;
    }
    in_world(async |world| {
        world.file("f", "x");
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        let got = one.on(&mine, with_lease(&Want::existing("f"), key(1), rh())).await;
        let other = one.open_file(&mine, &Want::existing("f")).await;
        let owner =
            frevo_store::lease::LeaseOwner { client: client_id(one.guid, "ann"), key: key(1) };
        let file = world.server.files.leases.file(owner).unwrap();
        let cell = world.server.files.find(file).unwrap();
        assert!(cell.is_observed());
        one.close(&mine, files::file_id(&got)).await;
        assert!(!cell.is_observed(), "nobody caches it any more");
        one.close(&mine, other).await;
    });
}

#[test]
fn another_program_that_changes_a_directory_breaks_its_lease() {
    if !is_possible() {
        return;
    }
    in_world(async |world| {
        host(world, "mkdir d; echo x > d/old");
        let (mut one, mine) = world.session("ann", &Offer::default()).await;
        for script in ["echo x > d/new", "mv d/new d/newer", "rm d/newer", "chmod 600 d/old"] {
            let dir = with_lease(&Want::directory("d"), key(1), rh());
            let got = one.on(&mine, dir).await;
            assert_eq!(lease(&got).lease.lease_state, rh());
            host(world, script);
            let told = lease_notification(&mut one).await;
            assert_eq!(told.new_lease_state, NONE, "{script}");
            one.on(&mine, lease_ack(key(1), NONE)).await.ok();
            one.close(&mine, files::file_id(&got)).await;
        }
    });
}
